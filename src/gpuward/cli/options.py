"""Options that several commands have. Nothing heavy is imported here: help shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from gpuward import names
from gpuward.cli.values import VERSION_WANTED, GoBool, Namespace
from gpuward.sandbox.known_faults import EVERYWHERE, FAULT_ANNOTATION, KNOWN_FAULTS

F = TypeVar("F", bound=Callable[..., object])


def nodes_begun(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Complete the names of nodes."""
    from gpuward.cli.completion import node_names

    named = ctx.params.get(param.name or "") or ()  # a name that is there already is not offered again
    return [name for name in node_names(ctx.params.get("kubeconfig"), ctx.params.get("context"), begun) if name not in named]


def files_begun(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Leave the completion of files to the shell."""
    return [CompletionItem(begun, type="file")]


def connection_options(command: F) -> F:
    """Add the options that say which cluster is meant."""
    command = click.option("--context", metavar="NAME", help="Use this context of the kubeconfig.")(command)
    return click.option("--kubeconfig", metavar="FILE", shell_complete=files_begun,
                        help="Use this kubeconfig. Without it $KUBECONFIG counts, then the service account of the pod, then "
                        "~/.kube/config.")(command)


def namespace_option(command: F) -> F:
    """Add the option that says where the operator lives."""
    return click.option("--namespace", "-n", envvar="OPERATOR_NAMESPACE", default=names.DEFAULT_NAMESPACE, show_default=True,
                        type=Namespace(), metavar="NAME", help="The operator lives in this namespace.")(command)


def output_option(form: str) -> Callable[[F], F]:
    """Add the option that says in which form to print: one for people, or JSON for programs."""
    return click.option("--output", "-o", type=click.Choice([form, "json"]), default=form, show_default=True,
                        help="Print in this form.")


def version_option(name: str, text: str) -> Callable[[F], F]:
    """Add the option that names a driver's version; an empty one is a variable that was not set, and not left out."""
    return click.option("--to", name, default="", callback=_written, metavar="VERSION", help=text)


def _written(ctx: click.Context, param: click.Parameter, version: str) -> str:
    if not version and ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT:
        raise click.BadParameter(f"'': {VERSION_WANTED}", ctx, param)
    return version


def dry_run_option(command: F) -> F:
    """Add the option that only says what would be written."""
    return click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")(command)


def go_bool(name: str, text: str, default: str = "false") -> Callable[[F], F]:
    """Add a boolean option that is written as in Go: `--name`, `--name=true` or `--name=false`."""
    return click.option(name, is_flag=False, flag_value="true", default=default, type=GoBool(), help=text)


def faults_option(when: str) -> Callable[[F], F]:
    """Add the option that says what is to go wrong in the sandbox."""
    everywhere = " and ".join(sorted(EVERYWHERE))
    text = (f"Let this go wrong {when}: {', '.join(KNOWN_FAULTS)}. It is on the named nodes, or on all of them; without a "
            f"name on the first GPU node, {everywhere} on every one. The option can be repeated. Later the annotation "
            f"{FAULT_ANNOTATION} of a node does the same.")
    return click.option("--fault", "faults", multiple=True, metavar="NAME[=NODES]", help=text, shell_complete=_faults_begun)


def _faults_begun(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    return [name for name in KNOWN_FAULTS if name.startswith(begun)]


def images_option(command: F) -> F:
    """Add the option that says which container images exist."""
    text = ("Say which images exist: a file with one of them, or a shell pattern, in each line, or any for all. Without it all "
            "do but drivers whose tag does not have the form of NVIDIA's, such as 595.91.07-ubuntu22.04.")
    return click.option("--images", default="", metavar="FILE|any", help=text, shell_complete=files_begun)(command)
