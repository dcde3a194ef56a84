"""`./dev chart`: write the chart's made files, and package it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.chart.files import copy_of, made_files


def main() -> None:
    """Write the files of the chart that are made from the code, or package the chart and print the package's path."""
    parser = argparse.ArgumentParser(prog="./dev chart", description="Write the chart's made files, or package the chart.")
    parser.add_argument("--package", metavar="FOLDER", type=Path, help="package the chart into this folder, and print its path")
    parser.add_argument("--without-nfd", action="store_true", help="leave out node feature discovery, for a cluster that has it")
    asked = parser.parse_args()
    if asked.package is None:
        for path, text in made_files().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(Path(folder), with_nfd=not asked.without_nfd)
        if not asked.without_nfd:
            _helm("dependency", "build", str(copy))
        asked.package.mkdir(parents=True, exist_ok=True)
        packaged = _helm("package", str(copy), "--destination", str(asked.package))
        sys.stdout.write(packaged.rpartition(": ")[2])


def _helm(*words: str) -> str:
    done = subprocess.run(["helm", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"helm {words[0]}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
