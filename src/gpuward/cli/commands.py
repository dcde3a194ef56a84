"""Every command of `gpuward` with its options.

What a command needs is imported when it is called: help and the version do not wait for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gpuward.agents.main import AGENTS
from gpuward.cli.checked import Checked, usage_errors
from gpuward.cli.extra import sandbox_for
from gpuward.cli.options import (
    connection_options,
    dry_run_option,
    faults_option,
    go_bool,
    images_option,
    namespace_option,
    nodes_begun,
    output_option,
    version_option,
)
from gpuward.cli.previewcommands import PREVIEWS
from gpuward.cli.values import Duration, NameOf, Namespace
from gpuward.cli.viewcommands import VIEWS
from gpuward.model.reasons import Reason


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="gpuward")
def commands() -> None:
    """Run and upgrade the GPU software stack of a Kubernetes cluster, and say at every moment what it waits for."""


@commands.command(cls=Checked)
@click.option("--nodes", default=12, show_default=True, type=click.IntRange(1, 5000), help="Simulate so many GPU nodes.")
@click.option("--max-parallel", type=click.IntRange(0), help="Set maxParallelUpgrades. With 0 there is no limit.")
@click.option("--max-unavailable", help="Set maxUnavailable, such as 2 or 25%.")
@click.option("--speed", default=20.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="Let time pass so many times faster.")
@click.option("--policy", "file", type=click.Path(dir_okay=False), metavar="FILE",
              help="Apply the ClusterPolicy of this file, and not that of NVIDIA's chart.")
@version_option("to_version", "Upgrade to this driver version, and not to the next one.")
@faults_option("when the driver's version changes")
@images_option
@click.option("--keep", is_flag=True, help="Leave the sandbox and the operator serving until Ctrl-C.")
def demo(file: str | None, speed: float, keep: bool, faults: tuple[str, ...], images: str, **options: Any) -> None:
    """Watch an upgrade of a simulated fleet.

    gpuward installs the GPU stack on the nodes, and then upgrades their driver under running workloads.
    """
    from gpuward.cli.policyfile import read_policy

    with sandbox_for("gpuward demo"):
        from gpuward.cli.demo import check, play
        from gpuward.cli.faults import placed
        from gpuward.cli.images import images_in
        from gpuward.cli.story import Options
        from gpuward.sandbox.samples import sample_policy
    options |= {"troubles": placed(faults, options["nodes"]), "has_image": images_in(images)}
    asked = Options(read_policy(file) if file else sample_policy(), **options)
    check(asked)
    play(asked, speed, keep=keep)


@commands.command()
@connection_options
@click.option("--metrics-bind-address", default=":8080", show_default=True, metavar="ADDRESS",
              help="Serve /metrics here. With 0 it is not served.")
@click.option("--health-probe-bind-address", default=":8081", show_default=True, metavar="ADDRESS",
              help="Serve /healthz and /readyz here. With 0 they are not served.")
@go_bool("--leader-elect", "Elect a leader, so that several replicas can run.")
@click.option("--leader-elect-namespace", default="", type=Namespace(optional=True), metavar="NAME",
              help="Keep the Lease in this namespace, and not in the operator's.")
@click.option("--leader-lease-renew-deadline", default="0s", metavar="DURATION",
              help="Let the leader try for so long to renew its Lease. With 0s it is 8s.")
@click.option("--zap-log-level", default="info", show_default=True, metavar="LEVEL",
              help="Log from this level on: debug, info, warning, error, panic, or a number above 0.")
@click.option("--zap-time-encoding", default="rfc3339", show_default=True, metavar="ENCODING",
              help="Write times as epoch, millis, nano, iso8601, rfc3339 or rfc3339nano.")
@click.option("--zap-encoder", type=click.Choice(["json", "console"]), default="json", show_default=True,
              help="Log in this format.")
@go_bool("--zap-devel", "Log for people, as text and with debug lines.")
@click.option("--recorder-dir", default="", metavar="FOLDER",
              help="Record decisions for `gpuward replay` in this folder, in 32 MiB. Without it they are in your home.")
@go_bool("--ui", "Serve a page that shows the fleet at /ui of the metrics address; --ui=false serves none.", "true")
@go_bool("--check-images", "Ask registries whether a driver's image exists before a node is emptied for it.", "true")
@click.option("--trusted-ca", default="", metavar="FILE",
              help="Trust these certificate authorities of registries, too, besides those of the system.")
@click.option("--no-recorder", is_flag=True, help="Record nothing for `gpuward replay`.")
def run(kubeconfig: str | None, context: str | None, **values: Any) -> None:
    """Run the operator.

    Its namespace is that of $OPERATOR_NAMESPACE, which must be set.
    """
    from gpuward.cli.run import Flags, check_flags, run_operator

    flags = Flags(**values)
    with usage_errors(click.get_current_context()):
        check_flags(flags)
    run_operator(kubeconfig, context, flags)


@commands.command()
@connection_options
@click.option("--driver", default="", metavar="NAME", help="Pause the upgrades of this NVIDIADriver alone.")
@dry_run_option
def pause(kubeconfig: str | None, context: str | None, driver: str, dry_run: bool) -> None:
    """Turn driver upgrades off until `gpuward resume`.

    No node starts, and no pod is evicted. It sets autoUpgrade to false in the ClusterPolicy or, where drivers are left to
    them, in all NVIDIADrivers. A node whose new driver is loaded already is still validated and put back into service.
    """
    from gpuward.cli.pause import pause_rollouts
    from gpuward.cli.rollouts import said_if_idle, tell

    tell(kubeconfig, context, lambda client: said_if_idle(
        client, pause_rollouts(client, driver, dry_run=dry_run), dry_run=dry_run))


@commands.command()
@connection_options
@click.option("--driver", default="", metavar="NAME", help="Resume the rollout of this NVIDIADriver alone.")
@dry_run_option
def resume(kubeconfig: str | None, context: str | None, driver: str, dry_run: bool) -> None:
    """Let a rollout go on that stands still.

    It ends a `gpuward pause`, and lets a rollout go on that too many failures or the trouble of a new driver have paused:
    failures up to now no longer count. The nodes that failed stay as they are; `gpuward retry` has them tried again.
    """
    from gpuward.cli.resume import resume_paused
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: resume_paused(client, driver, dry_run=dry_run))


@commands.command()
@click.argument("wave", default="", metavar="[WAVE]")
@connection_options
@namespace_option
@click.option("--driver", default="", metavar="NAME", help="Approve of the rollout of this NVIDIADriver alone.")
@click.option("--plan", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Approve of the plan in this file, which `gpuward plan --save` wrote: nodes start only as it says.")
@dry_run_option
def approve(wave: str, driver: str, path: Path | None, dry_run: bool, **connection: Any) -> None:
    """Let the next wave of a rollout start.

    Waves of a RolloutPolicy may ask for an approval. It is for the wave that is done now, and for the drivers that nodes are to
    get now: the next wave asks again, and so does another driver. WAVE makes sure that it is the wave that you mean.
    """
    from gpuward.cli import words
    from gpuward.cli.rollouts import tell

    if path is not None:
        if wave:
            raise click.UsageError(f"WAVE ({wave!r}) and --plan exclude each other: approve of the plan first, then of the wave")
        from gpuward.cli.savedplan import approve_plan

        tell(connection["kubeconfig"], connection["context"], lambda client: approve_plan(client, path, driver, dry_run=dry_run))
        return
    namespace = connection.pop("namespace")
    tell(**connection, lines_of=lambda client: words.approve(client, namespace, wave, driver, dry_run=dry_run))


@commands.command()
@click.argument("wave", default="", metavar="[WAVE]")
@connection_options
@namespace_option
@click.option("--driver", default="", metavar="NAME", help="Promote the rollout of this NVIDIADriver alone.")
@dry_run_option
def promote(wave: str, driver: str, dry_run: bool, **connection: Any) -> None:
    """Let the next wave of a rollout go now.

    A wave that is done soaks no longer; of one that is not, no node is waited for that is not done by now, whether it failed or
    has yet to start. It approves of nothing. WAVE makes sure that it is the wave that you mean.
    """
    from gpuward.cli import words
    from gpuward.cli.rollouts import tell

    namespace = connection.pop("namespace")
    tell(**connection, lines_of=lambda client: words.promote(client, namespace, wave, driver, dry_run=dry_run))


@commands.command()
@connection_options
@namespace_option
@click.option("--driver", default="", metavar="NAME", help="Abort the rollout of this NVIDIADriver alone.")
@dry_run_option
def abort(kubeconfig: str | None, context: str | None, namespace: str, driver: str, dry_run: bool) -> None:
    """End the rollout of a driver.

    No node starts with the driver that nodes are to get now. A node whose old driver is not touched yet goes back into service
    with it; any other that is under way finishes. Another driver is rolled out anew, and `gpuward resume` lets this one go on.
    """
    from gpuward.cli import words
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: words.abort(client, namespace, driver, dry_run=dry_run))


@commands.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=nodes_begun)
@connection_options
@dry_run_option
def retry(nodes: tuple[str, ...], kubeconfig: str | None, context: str | None, dry_run: bool) -> None:
    """Have nodes tried again whose upgrade failed.

    It labels each NODE upgrade-required, so that it starts as soon as its turn comes. Nothing is written unless all of them
    can be tried again.
    """
    from gpuward.cli.nodes import retry_nodes
    from gpuward.cli.rollouts import said_if_idle, tell

    tell(kubeconfig, context, lambda client: said_if_idle(
        client, retry_nodes(client, nodes, dry_run=dry_run), dry_run=dry_run))


@commands.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=nodes_begun)
@click.option("--undo", is_flag=True, help="Let the nodes be upgraded again.")
@connection_options
@dry_run_option
def skip(nodes: tuple[str, ...], undo: bool, kubeconfig: str | None, context: str | None, dry_run: bool) -> None:
    """Have nodes left alone by driver upgrades.

    A NODE that is under way goes on to its end. It sets the label nvidia.com/gpu-driver-upgrade.skip=true, or removes it.
    """
    from gpuward.cli.nodes import skip_nodes
    from gpuward.cli.rollouts import said_if_idle, tell

    tell(kubeconfig, context, lambda client: said_if_idle(
        client, skip_nodes(client, nodes, undo=undo, dry_run=dry_run), dry_run=dry_run))


@commands.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", metavar="TIME",
              help="Stop at the last decision up to this time, such as 2026-01-02T03:04:05Z, and show it.")
@click.option("--node", metavar="NODE",
              help="Explain this node where the replay stops: without --at, at the last decision about it.")
@output_option("text")
def replay(file: Path, at: str | None, node: str | None, output: str) -> None:
    """Decide again what a flight recorder recorded.

    It checks that the same plans come out, and exits with 1 if they do not. FILE is a recording of `gpuward run`, the folder
    of its flight recorder, or an archive of `gpuward bug-report`. With --at or --node the replay stops at one decision and
    explains it as `gpuward explain` does. No cluster is needed, and nothing is changed.
    """
    from gpuward.cli.replay import replay_recording

    if not replay_recording(file, at, node, output):
        sys.exit(1)


@commands.command()
@connection_options
@namespace_option
@click.option("--timeout", type=Duration(), default="5m", show_default=True, metavar="DURATION",
              help="Wait so long for policies and operands that are being deleted.")
@click.option("--unless-used", is_flag=True, help="Leave everything as it is, and end well, where it is in use.")
@dry_run_option
def cleanup(kubeconfig: str | None, context: str | None, namespace: str, **options: Any) -> None:
    """Take away what a GPU operator left on nodes.

    Once its policies and its operands are gone, the labels and annotations of an operator stay on the nodes, and cordons of
    upgrades that nobody brings to an end any more. This takes them off, and deletes the operator's Lease. What people set stays:
    their cordons, and labels that say what they want.
    """
    from gpuward.cli.cleanup import clean_nodes
    from gpuward.cli.rollouts import tell

    tell(kubeconfig, context, lambda client: clean_nodes(client, namespace, **options))


@commands.command()
@connection_options
@namespace_option
@output_option("text")
def check(kubeconfig: str | None, context: str | None, namespace: str, output: str) -> None:
    """Check whether a cluster is ready for gpuward, or what ails it.

    It prints one line for each thing it looks at, with what to do. It changes nothing, and says what it may not see. It exits
    with 1 if something fails.
    """
    from gpuward.cli.check import check_cluster

    check_cluster(kubeconfig, context, namespace, output)


@commands.command("bug-report", cls=Checked)
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE",
              help="Write to this file. Without it the name has the time, in this folder.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--tail", "lines", default=2000, show_default=True, type=click.IntRange(1), metavar="LINES",
              help="Take so many lines of each container's log.")
@click.option("--recordings", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="FOLDER",
              help="Take the flight recordings of this folder, and not those that `gpuward run` left on this machine.")
@connection_options
@namespace_option
def bug_report(kubeconfig: str | None, context: str | None, namespace: str, **options: Any) -> None:
    """Write what somebody needs who looks for a bug.

    It is one archive with the objects that decisions depend on, logs, events, flight recordings and what `gpuward status` says.
    It needs read rights only; what may not be read is named in its errors.txt. Secrets are not read, and values that look like
    credentials are left out. `gpuward replay` reads the recordings in it.
    """
    from gpuward.cli.bugreport import ReportOptions, write_report

    write_report(kubeconfig, context, namespace, ReportOptions(**options))


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands in a shell.

    SHELL then completes commands, options and names of nodes at the Tab key.

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
    """Print the CustomResourceDefinitions.

    They are for `kubectl apply --server-side -f -`.
    """
    from gpuward.cli.crds import print_crds

    print_crds()


@commands.command()
@click.argument("reason", required=False, metavar="[REASON]", type=NameOf("reason", sorted(Reason)))
def reasons(reason: str | None) -> None:
    """Say what a reason means and what to do about it.

    Reasons are those of `gpuward status`, of events and of alerts. Without REASON all are listed, with whether somebody has to
    act. It asks no cluster.
    """
    from gpuward.cli.reasons import print_reasons

    print_reasons(reason)


@commands.command(cls=Checked, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", metavar="NAME", type=click.Choice(AGENTS))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def agent(name: str, arguments: tuple[str, ...]) -> None:
    """Run a program of the operator on its node.

    driver-manager makes room on the node for a driver; nvidia-validator tells whether a component of the stack works. Both have
    the flags and variables of NVIDIA's: `gpuward agent NAME --help` lists them. Pods of the operator run them.
    """
    from gpuward.agents.main import agent as run_agent

    sys.exit(run_agent(name, arguments))


@commands.command(cls=Checked)
@click.option("--nodes", default=12, show_default=True, type=click.IntRange(0, 5000), help="Simulate so many GPU nodes.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Serve on this port of 127.0.0.1, and not on a free one.")
@click.option("--speed", default=1.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="Let time pass so many times faster, for ten minutes: it begins in the past and then goes as the clock does. "
              "An operator of another process keeps the clock's pace, so that its waits take as long as ever.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the kubeconfig to this file, and not to a temporary one.")
@faults_option("from the beginning")
@images_option
@click.option("--pull-seconds", default=0.0, show_default=True, type=click.FloatRange(0),
              help="Let each machine take so long to pull an image that it does not have.")
def sandbox(nodes: int, speed: float, faults: tuple[str, ...], images: str, **options: Any) -> None:
    """Serve a simulated cluster until Ctrl-C.

    It has nodes as node feature discovery leaves them, and workloads, but no operator.
    """
    with sandbox_for("gpuward sandbox"):
        from gpuward.cli.faults import placed
        from gpuward.cli.images import images_in
        from gpuward.cli.sandbox import ServedSandbox, serve_sandbox
    serve_sandbox(ServedSandbox(nodes, troubles=placed(faults, nodes), has_image=images_in(images), **options), speed)


for command in (*VIEWS, *PREVIEWS):
    commands.add_command(command)
