"""`gpuward crds`: the custom resources, ready for kubectl."""

from __future__ import annotations

import click

from gpuward.crd.generate import all_crds, as_yaml


def print_crds() -> None:
    """Print them as YAML documents."""
    click.echo(as_yaml(*all_crds()), nl=False)
