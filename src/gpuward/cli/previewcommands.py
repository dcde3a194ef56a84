"""Commands of `gpuward` that show what it would write, with their options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuward.cli.checked import Checked
from gpuward.cli.extra import sandbox_for
from gpuward.cli.options import connection_options, files_begun, namespace_option, output_option, version_option
from gpuward.cli.values import Duration

F = TypeVar("F", bound=Callable[..., object])


@click.command()
@click.option("--policy", "policies", multiple=True, required=True, metavar="FILE", shell_complete=files_begun,
              help="Read ClusterPolicies and NVIDIADrivers from this file, or from the standard input if it is -. The option can "
              "be repeated.")
@click.option("--nodes", multiple=True, metavar="FILE", shell_complete=files_begun,
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
@click.option("--policy", "policies", multiple=True, metavar="FILE", shell_complete=files_begun,
              help="Compare with what these ClusterPolicies, NVIDIADrivers and RolloutPolicies ask for, in place of those of the "
              "same names. Without it with what the policies in the cluster ask for.")
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
    command = version_option("version", version)(command)
    return click.option("--policy", "policies", multiple=True, metavar="FILE", shell_complete=files_begun, help=files)(command)


def exit_code_option(command: F) -> F:
    """Add the option that tells by the exit code whether something would change."""
    text = "Exit with 0 where nothing would change, with 1 where it failed, and with 2 where something would."
    return click.option("--detailed-exitcode", "detailed", is_flag=True, help=text)(command)


@click.command(cls=Checked)
@wanted_options
@connection_options
@namespace_option
@exit_code_option
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the plan to this file, for somebody's approval: which driver each node gets, in which wave, and the "
              "limits.")
@click.option("--force", is_flag=True, help="Replace the file of --save if it is there already.")
@click.option("--check", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Say in what the plan differs from the one in this file, and exit with 2 where it does.")
@output_option("table")
def plan(
    policies: tuple[str, ...], version: str, detailed: bool, save: Path | None, check: Path | None, **more: Any,
) -> None:
    """Show what a rollout would do next, and in which order.

    It makes the plan of the operator's next pass, by the operator's own functions: which nodes start at once, which have their
    turn after them, and which wait or are held, for which pod, disruption budget or node, and why. Nothing is played: pods that
    move may change a node's place. It changes nothing, and the rights to get and to list are enough.
    """
    from gpuward.cli.foresight import Wanted
    from gpuward.cli.plan import Connection, show_plan
    from gpuward.cli.savedplan import Target

    output, force = more.pop("output"), more.pop("force")
    target = Target(save, force=force) if save is not None else None
    show_plan(Connection(**more), Wanted(policies, version), output, detailed=detailed, save=target, check=check)


@click.command(cls=Checked)
@connection_options
@namespace_option
@click.option("--output", "-o", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
              help="Write the capture to this file, a .tar.gz.")
@click.option("--force", is_flag=True, help="Replace the file if it is there already.")
def capture(kubeconfig: str | None, context: str | None, namespace: str, path: Path, force: bool) -> None:
    """Write what a rollout depends on into one file.

    It has the nodes, the policies, the GPU stack, the pods on nodes with GPUs with their owners, and disruption budgets. Secrets
    and ConfigMaps are not in it, nor values of variables, commands and images of your pods. Names and labels are. It changes
    nothing, and the rights to get and to list are enough.
    """
    from gpuward.cli.capture import write_capture

    write_capture(kubeconfig, context, namespace, path, force=force)


@click.command(cls=Checked)
@wanted_options
@click.option("--from", "source", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Begin with what `gpuward capture` wrote to this file, and not with the cluster as it is now.")
@connection_options
@namespace_option
@click.option("--driver-start", "driver", type=Duration(), default="4m", show_default=True,
              help="Assume that a driver takes so long from its container's start.")
@click.option("--validation", type=Duration(), default="1m", show_default=True, help="Assume that its validation takes so long.")
@click.option("--eviction", type=Duration(), default="30s", show_default=True,
              help="Assume that an evicted pod takes so long to end. Its grace period bounds it.")
@click.option("--pod-start", "start", type=Duration(), default="30s", show_default=True,
              help="Assume that a pod takes so long until its first container runs.")
@click.option("--job", type=Duration(), default="1h", show_default=True,
              help="Assume that pods of a Job run so long, if it has no activeDeadlineSeconds.")
@click.option("--spread", type=click.FloatRange(1, 10), default=1.5, show_default=True,
              help="Assume that one in ten of these takes so many times as long.")
@click.option("--approval", type=Duration(), default="0s", show_default=True,
              help="Assume that waves that ask for an approval are approved of after so long.")
@click.option("--runs", type=click.IntRange(1, 1000), default=5, show_default=True, help="Draw durations for so many runs.")
@click.option("--time", "seconds", type=Duration(), default="5m", show_default=True,
              help="Begin no further run that would not end in this time. One is always played.")
@click.option("--horizon", type=Duration(), default="720h", show_default=True,
              help="Break a run off after so long by its own time.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Draw what each node does when, as an SVG that a browser opens.")
@exit_code_option
@output_option("text")
def rehearse(policies: tuple[str, ...], version: str, kubeconfig: str | None, context: str | None, namespace: str,  # noqa: PLR0913
             driver: float, validation: float, eviction: float, start: float, job: float, spread: float, approval: float,
             seconds: float, **others: Any) -> None:
    """Play a rollout on a copy of the cluster.

    The cluster, or a capture of it, is put into the sandbox, and the operator's own loops run there in virtual time. It says in
    which order nodes go, how long that takes, how many GPU-hours it costs, what holds nodes up, which would never be done, and
    what would change that. How long things take is assumed. Nothing is ever written to the cluster: the rights to get and to
    list are enough. It needs the extra gpuward[sandbox].
    """
    with sandbox_for("gpuward rehearse"):
        from gpuward.cli.rehearse import Options, rehearse_rollout
        from gpuward.rehearse.assumptions import Assumptions
    assumed = Assumptions(driver, validation, eviction, start, job, spread, approval)
    rehearse_rollout(kubeconfig, context, namespace, Options(policies, version, assumed=assumed, time=seconds, **others))


PREVIEWS = (render, diff, shadow, plan, capture, rehearse)
