"""The image's own Python, run on the machine that builds.

It makes the byte code and packs the layers, so that neither the Python nor the zlib of that machine shows in the image.
"""

from __future__ import annotations

from pathlib import Path

from tools.image.errors import output_of
from tools.image.machines import Machine
from tools.image.packages import PYTHON


class ImagePython:
    """Run the Python in a folder, with its own loader and libraries."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self._command: list[str | Path] = [root / machine.loader, "--library-path", root / machine.libraries,
                                           root / f"usr/bin/python{PYTHON}", "-S"]
        self._environment = {"PYTHONHOME": str(root / "usr"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *arguments: str | Path) -> bytes:
        """Return what it prints."""
        return output_of([*self._command, *arguments], env=self._environment)

    def compile(self, folder: Path, root: Path) -> None:
        """Compile all modules below a folder of an image; the byte code names them by their paths in it.

        It is checked against nothing when it is loaded: image and modules change only together. No `-j`: its workers would be
        started without the loader, with the libraries of this machine.
        """
        self.run("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/", folder)
