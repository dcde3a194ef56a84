"""The commands that NVIDIA's chart starts in the operator's image, by the names that they have there.

The image has one executable under several names; `main` looks at the one by which it was called.
"""

from __future__ import annotations

from typing import Any, Final

import click

from gpuward.cli.commands import commands
from gpuward.cli.options import connection_options

SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
debug_option: Final = click.option("--debug", "-d", is_flag=True, expose_value=False, envvar="DEBUG",
                                   help="Accepted as NVIDIA's command has it. It changes nothing.")


@click.command(context_settings=SETTINGS, params=[
    *commands.commands["run"].params,
    click.Option(["--zap-stacktrace-level"], expose_value=False, metavar="LEVEL",
                 help="Accepted as NVIDIA's operator has it. Log lines have no stack traces."),
])
@click.version_option(package_name="gpuward")
@click.pass_context
def gpu_operator(ctx: click.Context, /, **values: Any) -> None:
    """Run the operator, as `gpuward run` does.

    Its namespace is that of $OPERATOR_NAMESPACE, which must be set.
    """
    ctx.forward(commands.commands["run"], **values)


@click.group(context_settings=SETTINGS)
@click.version_option(package_name="gpuward")
@debug_option
def manage_crds() -> None:
    """Create, update or delete CustomResourceDefinitions.

    They are those in YAML files, as the hooks of NVIDIA's chart ask for it.
    """


filepath_option: Final = click.option(
    "--filepath", "-f", "paths", multiple=True, required=True, metavar="PATH",
    help="Read this file, or all files below this folder that end in .yaml or .yml. The option can be repeated, and shell "
         "patterns are understood.")


@manage_crds.command("apply")
@filepath_option
@connection_options
def apply_crds(paths: tuple[str, ...], kubeconfig: str | None, context: str | None) -> None:
    """Create or update CRDs, and wait until they are served.

    Objects of their kinds stay as they are.
    """
    from gpuward.cli.managecrds import apply, crds_in, tell

    found = crds_in(paths)
    tell(kubeconfig, context, lambda client: apply(client, found))


@manage_crds.command("delete")
@filepath_option
@connection_options
def delete_crds(paths: tuple[str, ...], kubeconfig: str | None, context: str | None) -> None:
    """Delete CRDs, and with them all objects of their kinds."""
    from gpuward.cli.managecrds import crds_in, delete, tell

    found = crds_in(paths)
    tell(kubeconfig, context, lambda client: delete(client, found))


@click.command(context_settings=SETTINGS)
@click.version_option(package_name="gpuward")
@debug_option
@click.option("--gpucluster-name", "name", required=True, envvar="GPUCLUSTER_NAME", metavar="NAME",
              help="Delete the GPUCluster of this name.")
@connection_options
def cleanup_gpuclusters(name: str, kubeconfig: str | None, context: str | None) -> None:
    """Delete a GPUCluster, and wait until it is gone.

    gpuward makes none. It is done as well where there is none, or no such kind.
    """
    from gpuward.cli.managecrds import clean_up, tell

    tell(kubeconfig, context, lambda client: clean_up(client, name))


PROGRAMS: Final[dict[str, click.Command]] = {
    "gpu-operator": gpu_operator,
    "manage-crds": manage_crds,
    "cleanup-gpuclusters": cleanup_gpuclusters,
}
"""From the name of the file that was called."""
