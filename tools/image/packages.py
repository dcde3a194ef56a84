"""The Debian packages of the image: which ones, pinned to which versions, and where they come from.

apt verifies them by the signatures of the archive, as everywhere. The list holds their hashes besides, so that the same
commit means the same bytes, and a package that was fetched once is not fetched again.
"""

from __future__ import annotations

import copy
import hashlib
import os
import platform
import re
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tools.image.errors import BuildError, output_of

SUITE: Final = "trixie"
PYTHON: Final = "3.13"
"""The suite's."""
WANTED: Final = (
    "base-files", "ca-certificates", "gcc-14-base", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1", "liblzma5",
    f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libssl3t64", "libzstd1", f"python{PYTHON}-minimal", "zlib1g",
)
"""What the image has. Python's package asks for more, which `system.py` leaves out with the modules that need it."""
LIST: Final = Path(__file__).parents[2] / "deploy" / "image" / "packages.txt"
HEAD: Final = """\
# The Debian packages of the image: architecture, name, version and SHA-256 of the package file.
# Written by `./dev image --refresh`.
"""
REFRESH: Final = "./dev image --refresh"
NOT_FOUND: Final = re.compile(r"Version '(.+)' for '(.+)' was not found")
"""What apt says of each package whose pinned version is gone."""


class Pin(NamedTuple):
    """Hold one line of the list."""

    arch: str
    name: str
    version: str
    sha256: str


def read_list(file: Path = LIST) -> list[Pin]:
    """Return the pinned packages."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Pin(*line.split()) for line in lines if line and not line.startswith("#")]


def write_list(pins: Iterable[Pin], file: Path = LIST) -> None:
    """Write the list anew."""
    file.write_text(HEAD + "".join(f"{' '.join(pin)}\n" for pin in sorted(pins)), encoding="utf-8")


class Source(NamedTuple):
    """Say where packages come from, and where those that came are kept."""

    mirrors: tuple[str, ...]
    """The one of the archive, and the one of its security updates."""
    cache: Path


def fetched(arch: str, source: Source, pins: Iterable[Pin]) -> list[Path]:
    """Return the pinned packages of an architecture as files, in the order of the list.

    Raises:
        BuildError: a version is gone from the mirror, or its bytes are others.
    """
    wanted = [pin for pin in pins if pin.arch == arch]
    if missing := set(WANTED) - {pin.name for pin in wanted}:
        raise BuildError(f"{LIST.name} has no {', '.join(sorted(missing))} for {arch}: run {REFRESH}")
    if not all(_is_kept(source.cache, pin) for pin in wanted):
        try:
            found = {pin.name: pin for pin in download(arch, [f"{pin.name}={pin.version}" for pin in wanted], source)}
        except BuildError as error:
            gone = [f"{name} {version}" for version, name in NOT_FOUND.findall(str(error))]
            if not gone:
                raise
            raise BuildError(f"the mirror no longer has {', '.join(gone)} ({arch}): {REFRESH} pins what it has. To build this "
                             "commit as it was, point --mirror at an archive of that time") from error
        for pin in wanted:
            if found[pin.name] != pin:
                raise BuildError(f"{LIST.name} says {' '.join(pin)}, the mirror has {' '.join(found[pin.name])}")
    return [_kept(source.cache, pin) for pin in wanted]


def download(arch: str, packages: Sequence[str], source: Source) -> list[Pin]:
    """Fetch packages into the cache, by name or as NAME=VERSION; return what they are. apt takes what they depend on, too."""
    source.cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        tar = Path(folder, "system.tar")
        # It would unpack them and throw the package files away, which say what came from where.
        output_of(["mmdebstrap", "--variant=extract", f"--architectures={arch}", f"--include={','.join(packages)}",
                   '--aptopt=Apt::Install-Recommends "false"', "--skip=cleanup/apt", SUITE, tar, *_sources(source.mirrors)])
        with tarfile.open(tar) as tree:
            for member in tree:
                if member.isreg() and member.name.endswith(".deb"):
                    extract(tree, member, Path(member.name).name, Path(folder))
        return [pin for deb in sorted(Path(folder).glob("*.deb")) if (pin := _keep(deb, arch, source.cache)).name in WANTED]


def extract(tree: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: Path) -> None:
    """Write a member under another name into a folder."""
    other = copy.copy(member)
    other.name = name
    without_surprises(tree).extract(other, folder)


def without_surprises(tree: tarfile.TarFile) -> tarfile.TarFile:
    """Filter what is extracted. Debian 12's Python cannot; what apt has verified, or we have built, is written as it is."""
    tree.extraction_filter = getattr(tarfile, "tar_filter", None)
    return tree


def _keep(deb: Path, arch: str, cache: Path) -> Pin:
    name, version = (output_of(["dpkg-deb", "--field", deb, field]).decode().strip() for field in ("Package", "Version"))
    pin = Pin(arch, name, version, hashlib.sha256(deb.read_bytes()).hexdigest())
    part = cache / f"{pin.sha256}.{os.getpid()}"
    shutil.copyfile(deb, part)
    part.rename(_kept(cache, pin))
    return pin


def _kept(cache: Path, pin: Pin) -> Path:
    return cache / f"{pin.sha256}.deb"


def _is_kept(cache: Path, pin: Pin) -> bool:
    """Tell whether a package is in the cache as it was put there: another one's bytes would go into the image unseen."""
    try:
        return hashlib.sha256(_kept(cache, pin).read_bytes()).hexdigest() == pin.sha256
    except FileNotFoundError:
        return False


def _sources(mirrors: Sequence[str]) -> list[str]:
    main, security = mirrors
    return [f"deb {main} {SUITE} main", f"deb {main} {SUITE}-updates main", f"deb {security} {SUITE}-security main"]


def mirrors_of_this_machine() -> tuple[str, str]:
    """Return the mirrors of Debian that this machine's own apt uses.

    Raises:
        BuildError: it uses none.
    """
    # Without that option it tells of lists only that are there, and images come without them.
    listed = output_of(["apt-get", "indextargets", "--no-release-info", "--format", "$(COMPONENT) $(RELEASE) $(REPO_URI)",
                        "Created-By: Packages"]).decode()
    found: dict[str, list[str]] = {}
    for component, release, mirror in (line.split(" ", 2) for line in listed.splitlines()):
        if component == "main":
            found.setdefault(release, []).append(mirror)
    for release in _releases():
        # Others have packages for a release of Debian, too, but neither updates nor security updates of it.
        ours = [each for each in found.get(release, []) if each in found.get(f"{release}-updates", [each])]
        if ours:
            return ours[0], found.get(f"{release}-security", ours)[0]
    raise BuildError("this machine's apt knows no mirror of Debian: name two with --mirror, one of the archive, one of its "
                     "security updates")


def _releases() -> list[str]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("VERSION_CODENAME", SUITE), "stable", "oldstable", "testing"] if release.get("ID") == "debian" else []
