"""Pack a folder as a layer of an OCI image, the same bytes each time. It is run by the image's own Python, on its own.

usage: pack.py FOLDER SECONDS OUT.tar.gz    prints the digest of the layer and that of what is in it; all is of one time
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import tarfile


def main() -> None:
    """Do it."""
    folder, seconds, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    plain = f"{out}.plain"
    with tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(_names(folder)):
            _add(tar, os.path.join(folder, name), name, seconds)
    with open(plain, "rb") as file:
        data = file.read()
    os.unlink(plain)
    packed = gzip.compress(data, 6, mtime=0)
    with open(out, "wb") as file:
        file.write(packed)
    sys.stdout.write(f"{hashlib.sha256(packed).hexdigest()} {hashlib.sha256(data).hexdigest()}\n")


def _names(folder: str) -> list[str]:
    return [os.path.relpath(os.path.join(place, name), folder)
            for place, folders, files in os.walk(folder) for name in folders + files]


def _add(tar: tarfile.TarFile, path: str, name: str, seconds: int) -> None:
    info = tarfile.TarInfo(name)
    info.mtime = seconds
    if os.path.islink(path):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        tar.addfile(info)
    elif os.path.isdir(path):
        info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        tar.addfile(info)
    else:  # no set-user-ID, and nobody's umask
        info.size, info.mode = os.path.getsize(path), 0o755 if os.access(path, os.X_OK) else 0o644
        with open(path, "rb") as content:
            tar.addfile(info, content)


if __name__ == "__main__":
    main()
