"""Commands of `gpuward` that show a cluster's drivers, and what gpuward would write, with their options."""

from __future__ import annotations

from typing import Any

import click

from gpuward.cli.options import connection_options, namespace_option, output_option


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@connection_options
@namespace_option
@click.option("--selector", "-l", default="", metavar="LABELS", help="Count only nodes with these labels, such as pool=a.")
@click.option("--failed", is_flag=True, help="Count only nodes whose upgrade failed.")
@click.option("--held", is_flag=True, help="Count only nodes that something holds, or whose driver is not ready.")
@output_option("table")
def drivers(kubeconfig: str | None, context: str | None, namespace: str, **choice: Any) -> None:
    """Show which drivers the fleet has, pool by pool.

    A pool is the nodes that get their driver from one DaemonSet: that of the ClusterPolicy, one of an NVIDIADriver, or one
    for a kernel where drivers are precompiled. For each it shows the driver it should have, the versions that are loaded,
    the kernels, how far its upgrade is, and what its nodes wait for. It changes nothing.
    """
    from gpuward.cli.drivers import show_drivers
    from gpuward.cli.status import Choice

    show_drivers(kubeconfig, context, namespace, Choice(**choice))


COMMANDS = (drivers,)
