"""`./dev image`: build gpuward's container image as one file, without a container runtime."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tools.image.build import ROOT, Wishes, build
from tools.image.errors import BuildError
from tools.image.machines import MACHINES, this_machine
from tools.image.oci import unpack_image
from tools.image.packages import LIST, WANTED, Source, download, mirrors_of_this_machine, write_list


def tell(line: str) -> None:
    """Say how far it is."""
    click.echo(line, err=True)


@click.command()
@click.option("--arch", type=click.Choice(sorted(MACHINES)), help="Build for this kind of machine, and not for that of this one.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=ROOT / "dist", metavar="FOLDER",
              help="Write image and SBOM into this folder, and not into dist.")
@click.option("--name", default="", metavar="NAME:TAG", help="Give the image this name, and not docker.io/library/gpuward with "
              "the version as tag.")
@click.option("--source", "url", default="", metavar="URL", help="Say in the image that its source is there.")
@click.option("--mirror", "mirrors", multiple=True, metavar="URL", help="Take Debian's packages from here, and not from where "
              "this machine's apt has them; given twice, the second one has the security updates.")
@click.option("--unpack", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="Unpack the image into this folder, too: to look at it, or to make another one of it.")
@click.option("--refresh", is_flag=True, help="Pin the versions of Debian's packages that there are now, and build nothing.")
def main(arch: str | None, out: Path, mirrors: tuple[str, ...], unpack: Path | None, refresh: bool, **said: str) -> None:
    """Build the container image.

    It prints the file, its digest, and the file of the SBOM.
    """
    try:
        source = Source((mirrors[0], mirrors[-1]) if mirrors else mirrors_of_this_machine(), ROOT / ".cache" / "image")
        if refresh:
            write_list(pin for each in sorted(MACHINES) for pin in download(each, WANTED, source))
            tell(f"{LIST.relative_to(ROOT)} is written: build, test and commit it")
            return
        built = build(MACHINES[arch] if arch else this_machine(), source, out.absolute(), Wishes(**said), tell)
        if unpack is not None:
            unpack_image(built.image, unpack)
    except BuildError as error:
        tell(f"./dev image: {error}")
        sys.exit(1)
    click.echo(f"IMAGE={built.image}\nDIGEST={built.digest}\nSBOM={built.sbom}")


if __name__ == "__main__":
    main()
