"""`gpuward crds`: the custom resources, ready for kubectl."""

from __future__ import annotations

import click

from gpuward.crd.generate import all_crds, as_yaml


@click.command()
def crds() -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`."""
    click.echo(as_yaml(*all_crds()), nl=False)
