"""From a commit to an image: the two layers, the archive and the bill of what is in it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tools.image import application, system
from tools.image.errors import BuildError, output_of
from tools.image.machines import Machine, this_machine
from tools.image.oci import ImageFacts, Layer, write_image
from tools.image.packages import SUITE, Source, fetched, read_list
from tools.image.python import ImagePython
from tools.image.sbom import TITLE, write_sbom

ROOT: Final = application.ROOT
PACK: Final = Path(__file__).with_name("pack.py")
LABEL: Final = "org.opencontainers.image"


@dataclass(frozen=True, slots=True)
class Commit:
    """Hold what is built."""

    revision: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Built:
    """Hold what came out."""

    image: Path
    digest: str
    sbom: Path


@dataclass(frozen=True, slots=True)
class Wishes:
    """Hold what the person who builds wants it to say; empty for what it says by itself."""

    name: str
    url: str


def build(machine: Machine, source: Source, out: Path, wishes: Wishes, tell: Callable[[str], None]) -> Built:
    """Build the image of this checkout."""
    commit = this_commit(tell)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out, prefix="image-") as folder:
        work = Path(folder)
        packages, distributions = lay(machine, source, commit, work, tell)
        layers = [_packed(work, "system", f"Debian {SUITE}: deploy/image/packages.txt", commit),
                  _packed(work, "application", "gpuward and uv.lock", commit)]
        version = next(each.version for each in distributions if each.name == "gpuward")
        facts = ImageFacts(machine.debian, commit.seconds, labels(version, commit, wishes.url))
        stem = out / f"gpuward-{version}-linux-{machine.debian}"
        image, sbom = Path(f"{stem}.oci.tar"), Path(f"{stem}.cdx.json")
        digest = write_image(image, wishes.name or f"docker.io/library/gpuward:{version}", facts, layers)
        write_sbom(sbom, digest, facts, packages, distributions, machine)
    tell(f"{image.stat().st_size / 1e6:.1f} MB, {len(packages)} Debian packages, {len(distributions)} Python distributions")
    return Built(image, digest, sbom)


def lay(machine: Machine, source: Source, commit: Commit, work: Path, tell: Callable[[str], None],
        ) -> tuple[list[system.Package], list[application.Distribution]]:
    """Lay the files of the two layers, `system` and `application`, below a folder."""
    tell(f"Debian {SUITE} for {machine.debian}: its packages")
    pins = read_list()
    packages = system.lay(fetched(machine.debian, source, pins), machine, work / "system")
    if machine != (here := this_machine()):
        tell(f"Debian {SUITE} for {here.debian}: its Python makes the byte code")
        system.lay(fetched(here.debian, source, pins), here, work / "native")
    tell("gpuward and what it needs: the wheels of the lock")
    distributions = application.lay(machine, commit.seconds, work / "application")
    tell("byte code")
    python = _python(work)
    python.compile(work / "system" / system.STDLIB, work / "system")
    python.compile(work / "application" / application.SITE, work / "application")
    return packages, distributions


def _python(work: Path) -> ImagePython:
    native = work / "native"
    return ImagePython(native if native.exists() else work / "system", this_machine())


def _packed(work: Path, name: str, origin: str, commit: Commit) -> Layer:
    file = work / f"{name}.tar.gz"
    digest, content = _python(work).run(PACK, work / name, str(commit.seconds), file).decode().split()
    return Layer(file, digest, content, origin)


def this_commit(tell: Callable[[str], None]) -> Commit:
    """Return the commit of this checkout; what is not committed is built too, and the revision says so.

    Raises:
        BuildError: this is no checkout.
    """
    try:
        revision, seconds = output_of(["git", "log", "-1", "--format=%H %ct"], cwd=ROOT).decode().split()
        changed = output_of(["git", "status", "--porcelain"], cwd=ROOT)
    except BuildError as error:
        raise BuildError(f"the image says of which commit it is, and this is no git checkout: {error}") from error
    if changed:
        tell("Changes that are not committed are built: this image cannot be made again from its commit")
    return Commit(f"{revision}-dirty" if changed else revision, int(seconds))


def labels(version: str, commit: Commit, url: str) -> dict[str, str]:
    """Return what the image says of itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = url or project.get("urls", {}).get("Source", "")
    return {
        TITLE: project["name"], f"{LABEL}.description": project["description"], f"{LABEL}.version": version,
        f"{LABEL}.revision": commit.revision, f"{LABEL}.licenses": project["license"],
        f"{LABEL}.created": ImageFacts("", commit.seconds, {}).created, **({f"{LABEL}.source": source} if source else {}),
    }
