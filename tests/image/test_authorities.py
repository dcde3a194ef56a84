"""The certificate authorities of the image: no script of a package runs, so that the build makes of them what Debian's would."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from tools.image.machines import MACHINES
from tools.image.system import STATUS, lay


@pytest.fixture
def package(tmp_path: Path) -> Path:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    tree = tmp_path / "tree"
    control = {"Package": "ca-certificates", "Version": "1", "Architecture": "all", "Maintainer": "A <a@b.example>",
               "Description": "-"}
    files = {"DEBIAN/control": "".join(f"{key}: {value}\n" for key, value in control.items()),
             "usr/share/ca-certificates/mozilla/Second.crt": "second\n", "usr/share/ca-certificates/mozilla/First.crt": "first",
             "usr/share/doc/ca-certificates/copyright": "free\n", "usr/sbin/update-ca-certificates": "#!/bin/sh\n"}
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    tree.chmod(0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, tmp_path / "a.deb"], check=True, capture_output=True)
    return tmp_path / "a.deb"


def test_the_authorities_are_one_file_where_openssl_looks(package: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (laid,) = lay([package], MACHINES["amd64"], root)
    bundle = "etc/ssl/certs/ca-certificates.crt"
    assert (root / bundle).read_bytes() == b"first\nsecond\n"
    assert (root / "usr/lib/ssl/cert.pem").resolve() == root / bundle
    assert laid.files == (bundle, "usr/share/doc/ca-certificates/copyright")
    assert not (root / "usr/share/ca-certificates").exists()
    sums = (root / STATUS / "ca-certificates.md5sums").read_text()
    digest = hashlib.md5((root / bundle).read_bytes(), usedforsecurity=False).hexdigest()
    assert f"{digest}  {bundle}\n" in sums
