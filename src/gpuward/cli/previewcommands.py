"""Commands of `gpuward` that show what it would write, with their options."""

from __future__ import annotations

from pathlib import Path

import click

from gpuward.cli.options import connection_options, namespace_option, output_option


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


PREVIEWS = (render, diff, shadow)
