"""A command that tells of options that cannot be used as click does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from gpuward.errors import InputError


@contextmanager
def usage_errors(ctx: click.Context) -> Iterator[None]:
    """Make the error of an option that cannot be used one of the command line."""
    try:
        yield
    except InputError as error:
        if not error.field.startswith("--"):
            raise
        raise click.BadParameter(f"{error.value!r}: {error.fix}", ctx, param_hint=f"'{error.field}'") from error


class Checked(click.Command):
    """Tell of an option that cannot be used as click does, with exit code 2, also where only the command can see it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with usage_errors(ctx):
            return super().invoke(ctx)
