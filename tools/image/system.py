"""The lower layer: what of the Debian packages a program in Python needs, and nothing to look around or to install with."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from tools.image.errors import output_of
from tools.image.machines import Machine
from tools.image.packages import PYTHON, extract

STDLIB: Final = f"usr/lib/python{PYTHON}"
INTERACTIVE: Final = ("_pyrepl", "curses", "dbm", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "sqlite3", "test", "tkinter",
                      "turtledemo", "unittest", "venv")
"""Packages of the standard library for people, tests and databases. With them their libraries stay out."""
EXTENSIONS: Final = ("_ctypes_test", "_curses", "_curses_panel", "_dbm", "_gdbm", "_sqlite3", "_uuid", "readline", "_test*",
                     "xxlimited*", "_xx*")
KEPT: Final = re.compile("|".join([
    rf"usr/bin/python{re.escape(PYTHON)}", r"usr/lib/[^/]+-linux-gnu/[^/]+\.so(\.[^/]+)?", r"usr/lib/os-release",
    r"usr/lib64/ld-[^/]+", r"usr/lib/ld-linux-[^/]+", rf"{re.escape(STDLIB)}/.+",
    r"usr/share/doc/[^/]+(/copyright)?", r"usr/share/common-licenses/.+",
]))
AUTHORITIES: Final = re.compile(r"usr/share/ca-certificates/.+\.crt")
BUNDLE: Final = "etc/ssl/certs/ca-certificates.crt"
"""Of the authorities only what Debian's script makes of them when it configures their package."""
OPENSSLS: Final = "usr/lib/ssl/cert.pem"
"""Where OpenSSL, and so Python, looks if no variable says anything else."""
LEFT_OUT: Final = re.compile("|".join([
    rf"{re.escape(STDLIB)}/({'|'.join(INTERACTIVE)}|config-[^/]+|__pycache__)/.+",
    rf"{re.escape(STDLIB)}/lib-dynload/({'|'.join(each.replace('*', '[^/]*') for each in EXTENSIONS)})\.cpython-[^/]+",
    rf"{re.escape(STDLIB)}/(turtle|pydoc|antigravity|sitecustomize|this|EXTERNALLY-MANAGED)(\.py)?",
    # What is loaded into other people's programs to watch them.
    r"usr/lib/[^/]+-linux-gnu/(libmemusage|libpcprofile|libc_malloc_debug|libthread_db|libBrokenLocale)\.so.*",
    r"usr/lib/[^/]+-linux-gnu/(libnss_hesiod|libnsl)\.so.*",
]))
FOLDERS: Final = ("dev", "etc", "proc", "run", "sys", "tmp")
USER: Final = 65532
FILES: Final = {
    "etc/passwd": f"root:x:0:0::/:/sbin/nologin\ngpuward:x:{USER}:{USER}::/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ngpuward:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
STATUS: Final = "var/lib/dpkg/status.d"
"""Where scanners look for the packages of an image that has no dpkg."""


class Package(NamedTuple):
    """Hold what a Debian package says of itself, and which of its files are in the image."""

    name: str
    version: str
    arch: str
    source: str
    maintainer: str
    homepage: str
    sha256: str
    files: tuple[str, ...]


def lay(debs: Iterable[Path], machine: Machine, root: Path) -> list[Package]:
    """Unpack into an empty folder what the image needs of packages; return those of which it has anything."""
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    packages = [_unpack(deb, root) for deb in debs]
    for name in ("bin", "lib", "lib64", "sbin"):  # as Debian's base-files links them
        if (root / "usr" / name).is_dir():
            (root / name).symlink_to(f"usr/{name}")
    for name, text in FILES.items():
        (root / name).write_text(text, encoding="utf-8")
    (root / "etc" / "os-release").symlink_to("../usr/lib/os-release")
    return packages


def _unpack(deb: Path, root: Path) -> Package:
    kept = []
    authorities = {}
    with tarfile.open(fileobj=io.BytesIO(output_of(["dpkg-deb", "--fsys-tarfile", deb]))) as tree:
        for member in tree:
            name = str(PurePosixPath(member.name))
            if AUTHORITIES.fullmatch(name) and (file := tree.extractfile(member)) is not None:
                authorities[name] = file.read()
            if not member.isdir() and KEPT.fullmatch(name) and not LEFT_OUT.fullmatch(name):
                extract(tree, member, name, root)
                kept.append(name)
    if authorities:
        _bundle(root, authorities)
        kept.insert(0, BUNDLE)
    fields = dict(_fields(control := output_of(["dpkg-deb", "--field", deb]).decode()))
    _note(root / STATUS, fields["Package"], control, root, kept)
    return Package(
        fields["Package"], fields["Version"], fields["Architecture"], fields.get("Source", fields["Package"]).partition(" ")[0],
        fields.get("Maintainer", ""), fields.get("Homepage", ""), hashlib.sha256(deb.read_bytes()).hexdigest(), tuple(kept))


def _bundle(root: Path, authorities: Mapping[str, bytes]) -> None:
    for name in (BUNDLE, OPENSSLS):
        (root / name).parent.mkdir(parents=True)
    (root / BUNDLE).write_bytes(b"".join(authorities[name].rstrip(b"\n") + b"\n" for name in sorted(authorities)))
    (root / OPENSSLS).symlink_to(f"../../../{BUNDLE}")


def _fields(control: str) -> Iterator[tuple[str, str]]:
    for line in control.splitlines():
        if not line.startswith((" ", "\t")):
            name, _, value = line.partition(": ")
            yield name, value


def _note(folder: Path, name: str, control: str, root: Path, kept: Iterable[str]) -> None:
    """Leave a package's control fields, and the digests of its files, in the form of Debian's own images without dpkg."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(control, encoding="utf-8")
    sums = [f"{hashlib.md5((root / each).read_bytes(), usedforsecurity=False).hexdigest()}  {each}\n"
            for each in kept if not (root / each).is_symlink()]
    (folder / f"{name}.md5sums").write_text("".join(sums), encoding="utf-8")
