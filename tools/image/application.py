"""The upper layer: gpuward's own wheel, what `uv.lock` says that it needs, and the names by which it is started."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from gpuward.agents.main import AGENTS
from tools.image.errors import output_of
from tools.image.machines import Machine
from tools.image.packages import PYTHON

ROOT: Final = Path(__file__).parents[2]
BROUGHT: Final = ROOT / ".cache" / "uv" / "bin" / "uv"
"""Where `./dev` brings it if it is not installed."""
SITE: Final = f"usr/local/lib/python{PYTHON}/dist-packages"
PROGRAM: Final = f"""\
#!/usr/bin/python{PYTHON} -I
import sys
from gpuward.agents.main import AGENTS
if sys.argv[0].rpartition("/")[2] in AGENTS:
    from gpuward.agents.main import main
else:
    from gpuward.cli.main import main
main()
"""
OTHER_NAMES: Final = ("cleanup-gpuclusters", "gpu-operator", "manage-crds", *AGENTS)
"""By which NVIDIA's chart starts the image and its hooks, and the operator's DaemonSets the programs on the nodes."""
CRDS: Final = "opt/gpu-operator"
NOT_OURS: Final = {
    "nvidia.com_gpuclusters.yaml": "gpuward does not read GPUClusters: their CRD stays as the chart installed it.\n",
    "nfd-api-crds.yaml": "The CRDs of node feature discovery stay as the chart installed them: they are of its release.\n",
}
"""Files that the chart's hooks ask for, with the reason why they hold no CRD."""
SOURCES: Final = frozenset({".c", ".h", ".pxd", ".pyx", ".pxi"})
OF_THE_BUILD: Final = frozenset({"direct_url.json", "uv_build.json", "uv_cache.json", ".lock"})
"""Files in which installers note where something came from on the machine that builds."""


class Distribution(NamedTuple):
    """Hold what a Python distribution in the image says of itself."""

    name: str
    version: str
    summary: str
    license: str
    """As it says it itself, best as SPDX expression; empty where it says nothing short."""
    needs: tuple[str, ...]
    """As it says them, with their markers."""


def lay(machine: Machine, seconds: int, root: Path) -> list[Distribution]:
    """Install gpuward into an empty folder; return the distributions that it has."""
    site = root / SITE
    site.mkdir(parents=True)
    uv = str(BROUGHT) if BROUGHT.exists() else "uv"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    with TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        output_of([uv, "export", "--quiet", "--project", ROOT, "--frozen", "--no-dev", "--no-emit-project", "-o", requirements])
        output_of([uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder,
                   ROOT], env=environment)
        (wheel,) = Path(folder).glob("*.whl")
        install: list[str | Path] = [
            uv, "pip", "install", "--quiet", "--target", site, "--python", sys.executable, "--python-version", PYTHON,
            "--python-platform", machine.wheels, "--only-binary", ":all:", "--no-deps", "--link-mode", "copy"]
        output_of([*install, "--require-hashes", "-r", requirements])
        output_of([*install, wheel])
    _tidy(site)
    _programs(root)
    _crds(root / CRDS)
    return sorted(distributions(site))


def _tidy(site: Path) -> None:
    """Remove what is of the build and not of the image, also from the lists of what was installed."""
    rmtree(site / "bin", ignore_errors=True)
    for path in sorted(site.rglob("*")):
        if path.name in OF_THE_BUILD or path.suffix in SOURCES:
            path.unlink()
        elif path.name == "__pycache__":
            rmtree(path)
    for record in site.glob("*.dist-info/RECORD"):
        rows = [row for row in csv.reader(record.read_text(encoding="utf-8").splitlines()) if row and (site / row[0]).exists()]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted(rows))
        record.write_text(text.getvalue(), encoding="utf-8")


def _programs(root: Path) -> None:
    folder = root / "usr" / "bin"
    folder.mkdir(parents=True)
    (folder / "gpuward").write_text(PROGRAM, encoding="utf-8")
    (folder / "gpuward").chmod(0o755)
    for name in OTHER_NAMES:
        (folder / name).symlink_to("gpuward")


def _crds(folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in (ROOT / "deploy" / "crds").glob("*.yaml"):
        copyfile(file, folder / file.name)
    for name, reason in NOT_OURS.items():
        (folder / name).write_text(f"# {reason}", encoding="utf-8")


def distributions(site: Path) -> Iterator[Distribution]:
    """Read the distributions that are installed in a folder."""
    for file in site.glob("*.dist-info/METADATA"):
        meta = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
        yield Distribution(meta["Name"], meta["Version"], meta.get("Summary", ""), _license(meta),
                           tuple(meta.get_all("Requires-Dist") or ()))


def _license(meta: Message) -> str:
    old = meta.get("License", "")  # some have the whole text there
    classified = [each.rpartition(" :: ")[2] for each in meta.get_all("Classifier") or () if each.startswith("License :: ")]
    return meta.get("License-Expression") or (old if 0 < len(old) < 80 else "") or ", ".join(classified)
