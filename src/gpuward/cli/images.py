"""What `--images` means: which images the sandbox's kubelets find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuward.errors import InputError
from gpuward.sandbox.images import any_image, listed, nvidias

ANY = "any"


def images_in(option: str) -> Callable[[str], bool]:
    """Return what tells whether an image exists; `option` is a file with a pattern in each line, `any`, or empty.

    Raises:
        InputError: the file cannot be read.
    """
    if not option:
        return nvidias
    if option == ANY:
        return any_image
    try:
        lines = Path(option).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError("--images", option, f"name a file with an image in each line, or write any: {why}") from error
    return listed(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
