"""Every command of `gpuward` with its options.

What a command needs is imported when it is called: help and the version do not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuward import names
from gpuward.cli.extra import sandbox_for
from gpuward.cli.values import Duration, OutputForm

F = TypeVar("F", bound=Callable[..., object])


def connection_options(command: F) -> F:
    """Add the options that say which cluster is meant."""
    command = click.option("--context", help="The context of the kubeconfig to use.")(command)
    return click.option("--kubeconfig", help="The kubeconfig file; else $KUBECONFIG, the pod's service account, ~/.kube/config.")(
        command
    )


def namespace_option(command: F) -> F:
    """Add the option that says where the operator lives."""
    return click.option("--namespace", "-n", envvar="OPERATOR_NAMESPACE", default=names.DEFAULT_NAMESPACE, show_default=True,
                        help="The operator's namespace.")(command)


def output_option(form: str) -> Callable[[F], F]:
    """Add the option that says in which form to print: one for people, or JSON for programs."""
    return click.option("--output", "-o", type=click.Choice([form, "json"]), default=form, show_default=True, help="The form.")


def dry_run_option(command: F) -> F:
    """Add the option that only says what would be written."""
    return click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")(command)


def go_bool(name: str, text: str) -> Callable[[F], F]:
    """Add a boolean option that is written as in Go: `--name`, `--name=true` or `--name=false`."""
    return click.option(name, is_flag=False, flag_value="true", default="false", type=click.BOOL, help=text)


def _nodes(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    from gpuward.cli.completion import node_names

    named = ctx.params.get(param.name or "") or ()  # a name that is there already is not offered again
    return [name for name in node_names(ctx.params.get("kubeconfig"), ctx.params.get("context"), begun) if name not in named]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="gpuward")
def commands() -> None:
    """Run and upgrade the GPU software stack of a Kubernetes cluster, and say at every moment what it waits for."""


@commands.command()
@click.option("--nodes", default=12, show_default=True, type=click.IntRange(1, 5000), help="GPU nodes in the sandbox.")
@click.option("--max-parallel", type=click.IntRange(0), help="Set maxParallelUpgrades; 0 is no limit.")
@click.option("--max-unavailable", help="Set maxUnavailable, such as 2 or 25%.")
@click.option("--speed", default=20.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Factor of virtual time.")
@click.option("--policy", "file", type=click.Path(dir_okay=False), help="A ClusterPolicy file; NVIDIA's chart's by default.")
@click.option("--to", "to_version", default="", help="The driver version to upgrade to; the next one by default.")
@click.option("--keep", is_flag=True, help="Leave the sandbox and the operator serving until Ctrl-C.")
def demo(file: str | None, speed: float, keep: bool, **options: Any) -> None:
    """Watch gpuward install the GPU stack on a simulated fleet, and then upgrade its driver under running workloads."""
    from gpuward.cli.policyfile import read_policy

    with sandbox_for("gpuward demo"):
        from gpuward.cli.demo import play
        from gpuward.cli.story import Options
        from gpuward.sandbox.samples import sample_policy
    play(Options(read_policy(file) if file else sample_policy(), **options), speed, keep=keep)


@commands.command()
@connection_options
@click.option("--metrics-bind-address", default=":8080", show_default=True, help="Where /metrics is served; 0 for nowhere.")
@click.option("--health-probe-bind-address", default=":8081", show_default=True, help="Where /healthz and /readyz are served.")
@go_bool("--leader-elect", "Act only while holding the Lease, so that several replicas can run.")
@click.option("--leader-elect-namespace", default="", help="Where the Lease is; the operator's namespace by default.")
@click.option("--leader-lease-renew-deadline", default="0s", help="How long the leader tries to renew, such as 10s; 0s: 8s.")
@click.option("--zap-log-level", default="info", show_default=True, help="debug, info, warning, error, or a number above 0.")
@click.option("--zap-time-encoding", default="epoch", show_default=True, help="epoch, millis, nano, iso8601, rfc3339 ...")
@click.option("--zap-encoder", type=click.Choice(["json", "console"]), default="json", show_default=True, help="Log format.")
@go_bool("--zap-devel", "Log for people: text, and debug lines too.")
@click.option("--recorder-dir", default="", help="Where `gpuward replay` finds decisions, 32 MiB; by default in your home.")
@click.option("--no-recorder", is_flag=True, help="Record nothing for `gpuward replay`.")
def run(kubeconfig: str | None, context: str | None, **values: Any) -> None:
    """Run the operator. The namespace is that of $OPERATOR_NAMESPACE, which must be set."""
    from gpuward.cli.run import Flags, run_operator

    run_operator(kubeconfig, context, Flags(**values))


@commands.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@connection_options
@namespace_option
@click.option("--selector", "-l", default="", help="Only nodes with these labels, such as pool=a.")
@click.option("--failed", is_flag=True, help="Only nodes whose upgrade failed.")
@click.option("--held", is_flag=True, help="Only nodes that something holds, or whose driver is not ready.")
@click.option("--watch", "-w", is_flag=True, help="Keep showing it as it changes, until Ctrl-C.")
@click.option("--wait", is_flag=True, help="Wait until every node is up to date, then show it.")
@click.option("--timeout", type=Duration(), default="0s", help="With --wait: at most so long, such as 30m; 0s is without end.")
@click.option("--output", "-o", type=OutputForm(), default="table", show_default=True, help="The form.")
def status(kubeconfig: str | None, context: str | None, namespace: str, watch: bool, wait: bool, timeout: float,
           **choice: Any) -> None:
    """Show how far the fleet is, how the operands stand, and what each node waits for.

    It works out the same plan as the operator, from the cluster's state alone, and changes nothing.

    With --wait it exits with 0 when all is up to date, with 3 when the time is up, and with 4 when the rollout has stopped
    and does not go on by itself.
    """
    from gpuward.cli.status import Choice, show_status
    from gpuward.cli.waiting import Waiting

    if watch and wait:
        raise click.UsageError("--watch and --wait exclude each other")
    show_status(kubeconfig, context, namespace, Choice(**choice), watch=watch, wait=Waiting(timeout) if wait else None)


@commands.command()
@click.argument("node", shell_complete=_nodes)
@connection_options
@namespace_option
@output_option("text")
def explain(node: str, kubeconfig: str | None, context: str | None, namespace: str, output: str) -> None:
    """Say why NODE waits, since when and until when, which pods have to leave it, and what would help.

    Each remedy was tried on paper: the upgrade was decided again as if it were done, and only what changes the decision is
    shown. Nothing is changed, and read rights suffice.
    """
    from gpuward.cli.explain import explain_node

    explain_node(node, kubeconfig, context, namespace, output)


@commands.command()
@connection_options
@click.option("--driver", default="", metavar="NAME", help="Pause the upgrades of this NVIDIADriver alone.")
@dry_run_option
def pause(kubeconfig: str | None, context: str | None, driver: str, dry_run: bool) -> None:
    """Turn driver upgrades off: no node starts and no pod is evicted until `gpuward resume`.

    It sets autoUpgrade to false in the ClusterPolicy or, where drivers are left to them, in all NVIDIADrivers. A node whose new
    driver is loaded already is still validated and put back into service.
    """
    from gpuward.cli.pause import pause_rollouts
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: pause_rollouts(client, driver, dry_run=dry_run))


@commands.command()
@connection_options
@click.option("--driver", default="", metavar="NAME", help="Resume the rollout of this NVIDIADriver alone.")
@dry_run_option
def resume(kubeconfig: str | None, context: str | None, driver: str, dry_run: bool) -> None:
    """Let a rollout go on that `gpuward pause`, too many failures or the trouble of a new driver have paused.

    Failures up to now no longer count. The nodes that failed stay as they are; `gpuward retry` has them tried again.
    """
    from gpuward.cli.resume import resume_paused
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: resume_paused(client, driver, dry_run=dry_run))


@commands.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=_nodes)
@connection_options
@dry_run_option
def retry(nodes: tuple[str, ...], kubeconfig: str | None, context: str | None, dry_run: bool) -> None:
    """Have each NODE whose upgrade failed tried again, as soon as its turn comes.

    It labels the nodes upgrade-required. Nothing is written unless all of them can be tried again.
    """
    from gpuward.cli.nodes import retry_nodes
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: retry_nodes(client, nodes, dry_run=dry_run))


@commands.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=_nodes)
@click.option("--undo", is_flag=True, help="Let the nodes be upgraded again.")
@connection_options
@dry_run_option
def skip(nodes: tuple[str, ...], undo: bool, kubeconfig: str | None, context: str | None, dry_run: bool) -> None:
    """Have each NODE left alone by driver upgrades; one that is under way goes on to its end.

    It sets the label nvidia.com/gpu-driver-upgrade.skip=true, or removes it.
    """
    from gpuward.cli.nodes import skip_nodes
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: skip_nodes(client, nodes, undo=undo, dry_run=dry_run))


@commands.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", help="Stop at the last decision up to this time (RFC 3339, such as 2026-01-02T03:04:05Z), and show it.")
@click.option("--node", help="Explain this node where the replay stops; without --at, the last decision about it.")
@output_option("text")
def replay(file: Path, at: str | None, node: str | None, output: str) -> None:
    """Decide again, offline, all that FILE recorded, and check that the same plans come out; exit with 1 if they do not.

    FILE is a recording of `gpuward run`, or the folder of its flight recorder. With --at or --node the replay stops at one
    decision and explains it as `gpuward explain` does. No cluster is needed, and nothing is changed.
    """
    from gpuward.cli.replay import replay_recording

    if not replay_recording(file, at, node, output):
        sys.exit(1)


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes commands, options and names of nodes.

    \b
    Put one of these lines into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:
      source <(gpuward completion bash)
      source <(gpuward completion zsh)
      gpuward completion fish | source
    """
    from gpuward.cli.completion import print_completion

    print_completion(commands, shell)


@commands.command()
def crds() -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`."""
    from gpuward.cli.crds import print_crds

    print_crds()


@commands.command()
@click.option("--nodes", default=12, show_default=True, type=click.IntRange(0, 5000), help="GPU nodes.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="The port on 127.0.0.1; a free one by default.")
@click.option("--speed", default=1.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Factor of virtual time.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Where to write the kubeconfig; a temporary file by default.")
def sandbox(nodes: int, port: int, speed: float, kubeconfig: str | None) -> None:
    """Serve the sandbox alone until Ctrl-C: nodes as node feature discovery leaves them, workloads, no operator."""
    with sandbox_for("gpuward sandbox"):
        from gpuward.cli.sandbox import serve_sandbox
    serve_sandbox(nodes, port, speed, kubeconfig)
