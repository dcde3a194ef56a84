"""Commands of `gpuward` that show how nodes and their drivers stand, with their options."""

from __future__ import annotations

from typing import Any

import click

from gpuward.cli.checked import Checked
from gpuward.cli.options import connection_options, namespace_option, nodes_begun, output_option
from gpuward.cli.values import Duration, OutputForm


@click.command(cls=Checked)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=nodes_begun)
@connection_options
@namespace_option
@click.option("--selector", "-l", default="", metavar="LABELS", help="Show only nodes with these labels, such as pool=a.")
@click.option("--failed", is_flag=True, help="Show only nodes whose upgrade failed.")
@click.option("--held", is_flag=True, help="Show only nodes that do not go on by themselves.")
@click.option("--watch", "-w", is_flag=True, help="Keep showing what changes, until Ctrl-C.")
@click.option("--wait", is_flag=True, help="Wait until every node is up to date, then show it.")
@click.option("--timeout", type=Duration(),
              help="With --wait, wait at most so long, such as 30m. Without it, or with 0s, without end.")
@click.option("--output", "-o", type=OutputForm(), default="table", show_default=True, help="Print in this form.")
def status(kubeconfig: str | None, context: str | None, namespace: str, watch: bool, wait: bool, timeout: float | None,
           **choice: Any) -> None:
    """Show how far the fleet is, and what each node waits for.

    It also shows how the operands stand. It works out the same plan as the operator, from the cluster's state alone, and
    changes nothing.

    With --wait it exits with 0 when all is up to date, with 3 when the time is up, and with 4 when the rollout has stopped
    and does not go on by itself.
    """
    from gpuward.cli.status import Choice, show_status
    from gpuward.cli.waiting import Waiting

    if watch and wait:
        raise click.UsageError("--watch and --wait exclude each other")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait: add --wait, or leave it out")
    show_status(kubeconfig, context, namespace, Choice(**choice), watch=watch, wait=Waiting(timeout or 0.0) if wait else None)


@click.command()
@click.argument("node", shell_complete=nodes_begun)
@connection_options
@namespace_option
@output_option("text")
def explain(node: str, kubeconfig: str | None, context: str | None, namespace: str, output: str) -> None:
    """Say why NODE waits, and what would help.

    It tells since when and until when NODE waits, and which pods have to leave it. Each remedy was tried on paper: the
    upgrade was decided again as if it were done, and only what changes the decision is shown. Nothing is changed, and read
    rights suffice.
    """
    from gpuward.cli.explain import explain_node

    explain_node(node, kubeconfig, context, namespace, output)


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=nodes_begun)
@connection_options
@namespace_option
@click.option("--selector", "-l", default="", metavar="LABELS", help="Count only nodes with these labels, such as pool=a.")
@click.option("--failed", is_flag=True, help="Count only nodes whose upgrade failed.")
@click.option("--held", is_flag=True, help="Count only nodes that do not go on by themselves.")
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


@click.command()
@click.argument("rollout", required=False, default="", metavar="[ROLLOUT]")
@connection_options
@output_option("table")
def history(kubeconfig: str | None, context: str | None, rollout: str, output: str) -> None:
    """Show the rollouts of drivers that the nodes remember.

    The newest comes first. For each it says from and to which driver, who asked, how many nodes, failures and evicted pods, and
    what that cost in GPU time. ROLLOUT is the name of one, or the version that it brought: it is shown with its nodes, and how
    long each step took there. It reads nodes and nothing else, and changes nothing.
    """
    from gpuward.cli.history import show_history

    show_history(kubeconfig, context, rollout, output)


VIEWS = (status, explain, drivers, history)
