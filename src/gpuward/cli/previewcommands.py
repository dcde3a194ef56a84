"""Commands of `gpuward` that show what it would write, with their options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuward.cli.checked import Checked
from gpuward.cli.options import connection_options, namespace_option, output_option

F = TypeVar("F", bound=Callable[..., object])


@click.command()
@click.option("--policy", "policies", multiple=True, required=True, metavar="FILE",
              help="Read ClusterPolicies and NVIDIADrivers from this file, or from the standard input if it is -. The option can "
              "be repeated.")
@click.option("--nodes", multiple=True, metavar="FILE",
              help="Read the cluster's nodes from this file, as `kubectl get nodes -o yaml` prints them, and ConfigMaps and "
              "Secrets that a policy names. Without it there is one node with GPUs, which runs Ubuntu 22.04.")
@namespace_option
@click.option("--output", "-o", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Write each object to a file of its own in this folder, and print none.")
def render(policies: tuple[str, ...], nodes: tuple[str, ...], namespace: str, folder: Path | None) -> None:
    """Print every object that gpuward would write for a policy.

    They are in the order in which they would be written, with the labels that it would give nodes at the end. No cluster is
    needed. Where a policy cannot be followed it says which field is wrong, its value and what to write instead, and exits with
    1. Images that a policy leaves open are those of the shipped operator; variables such as DRIVER_MANAGER_IMAGE name others.
    """
    from gpuward.cli.render import render_policies

    render_policies(policies, nodes, namespace, folder)


@click.command()
@click.option("--policy", "policies", multiple=True, metavar="FILE",
              help="Compare with what these ClusterPolicies and NVIDIADrivers ask for, in place of those of the same names. "
              "Without it with what the policies in the cluster ask for.")
@connection_options
@namespace_option
def diff(policies: tuple[str, ...], kubeconfig: str | None, context: str | None, namespace: str) -> None:
    """Show what gpuward would change in a cluster.

    Each object that it would create, change or delete is printed as `kubectl diff` does, and so are the labels that it would
    give nodes. Statuses, gpuward's notes and what an upgrade does to nodes are left out. It changes nothing, and read rights
    suffice. It exits with 0 where nothing differs, with 1 where something does, and with 2 or more where it failed.
    """
    from gpuward.cli.diff import show_diff

    show_diff(policies, kubeconfig, context, namespace)


@click.command()
@connection_options
@namespace_option
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option("--rights", is_flag=True, help="Print a ClusterRole with the rights that it needs, and end.")
@output_option("text")
def shadow(kubeconfig: str | None, context: str | None, namespace: str, once: bool, rights: bool, output: str) -> None:
    """Say what gpuward would do beside NVIDIA's operator.

    It stays beside the operator that runs. It shows which objects and labels gpuward would write in its place, which driver
    pods would restart, which should be none, and where the running rollout is stuck and why. It prints that again whenever it
    changes, until Ctrl-C. It never writes: the rights to get, list and watch are enough.
    """
    from gpuward.cli.shadow import print_rights, shadow_cluster

    if rights:
        print_rights()
    else:
        shadow_cluster(kubeconfig, context, namespace, output, once=once)


def wanted_options(command: F) -> F:
    """Add the options that say what is to be foreseen."""
    version = ("Give the drivers this version, as if somebody had set it in the ClusterPolicy, or in each NVIDIADriver where "
               "drivers are theirs.")
    files = ("Put the ClusterPolicies, NVIDIADrivers and RolloutPolicies of this file in place of those of the same names. The "
             "option can be repeated. Without it the policies in the cluster count.")
    command = click.option("--to", "version", default="", metavar="VERSION", help=version)(command)
    return click.option("--policy", "policies", multiple=True, metavar="FILE", help=files)(command)


def exit_code_option(command: F) -> F:
    """Add the option that tells by the exit code whether something would change."""
    text = "Exit with 0 where nothing would change, with 1 where it failed, and with 2 where something would."
    return click.option("--detailed-exitcode", "detailed", is_flag=True, help=text)(command)


@click.command(cls=Checked)
@wanted_options
@connection_options
@namespace_option
@exit_code_option
@output_option("table")
def plan(policies: tuple[str, ...], version: str, detailed: bool, output: str, **connection: Any) -> None:
    """Show what a rollout would do next, and in which order.

    It makes the plan of the operator's next pass, by the operator's own functions: which nodes start at once, which have their
    turn after them, and which are held, by which pod, disruption budget or node, and why. Nothing is played: pods that move may
    change a node's place. It changes nothing, and the rights to get and to list are enough.
    """
    from gpuward.cli.foresight import Wanted
    from gpuward.cli.plan import Connection, show_plan

    show_plan(Connection(**connection), Wanted(policies, version), output, detailed=detailed)


PREVIEWS = (render, diff, shadow, plan)
