"""Files below another root than ours, as a process there would find them: an absolute link leads to that root.

It is a program, too, for what its caller must not be held up by; so it needs nothing of gpuward's.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

LONGEST_LINK: Final = 40


def located(base: Path, path: PurePosixPath, elsewhere: Collection[str] = ()) -> tuple[str, bool] | None:
    """Return where a file is that is not empty, and whether it can be run.

    Raises:
        OSError: a path leads to one of these mount points, at which nothing is looked then.
    """
    found = _followed(base, path, elsewhere)
    if found is None:
        return None
    try:
        here = base / found.relative_to("/")
        return (str(found), os.access(here, os.X_OK)) if here.is_file() and here.stat().st_size > 0 else None
    except OSError:
        return None


def _followed(base: Path, path: PurePosixPath, elsewhere: Collection[str]) -> PurePosixPath | None:
    rest, at, links = [*path.parts[1:]], PurePosixPath("/"), 0
    while rest:
        name = rest.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            at = at.parent
            continue
        place = base / (at / name).relative_to("/")
        if str(place) in elsewhere:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(place))
        try:
            target = PurePosixPath(os.readlink(place))
        except OSError:
            at /= name
            continue
        if (links := links + 1) > LONGEST_LINK:
            return None
        if target.is_absolute():
            at, target = PurePosixPath("/"), target.relative_to("/")
        rest = [*target.parts, *rest]
    return at


if __name__ == "__main__":
    if (answer := located(Path(sys.argv[1]), PurePosixPath(sys.argv[2]))) is not None:
        sys.stdout.write(f"{'x' if answer[1] else '-'}{answer[0]}\n")
