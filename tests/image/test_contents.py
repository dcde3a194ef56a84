"""What is in the image, and what is not."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import stat
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tools.image.application import SITE
from tools.image.oci import read_image
from tools.image.system import FILES, FOLDERS, STATUS, STDLIB

from gpuward.agents.main import AGENTS
from gpuward.cli.managecrds import crds_in
from tests.image.unpacked import ROOT, Unpacked, another_checkout, build, revision, unpacked

pytestmark = pytest.mark.image

MOST = 40_000_000
OPEN = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
UNCHECKED_HASH = 0b01


def test_it_is_small_and_its_digest_is_that_of_its_manifest(image: Unpacked) -> None:
    assert image.image.stat().st_size < MOST
    with tarfile.open(image.image) as tar:
        blob = tar.extractfile(f"blobs/{image.digest.replace(':', '/')}")
        assert blob is not None
        assert f"sha256:{hashlib.sha256(blob.read()).hexdigest()}" == image.digest == read_image(image.image)[0]


def test_another_folder_and_another_umask_make_the_same_image_and_the_same_bill(image: Unpacked, tmp_path: Path) -> None:
    checkout = another_checkout(tmp_path / "elsewhere", image.checkout)
    other = unpacked(build(checkout, tmp_path / "out", umask=0o077), tmp_path / "root", checkout)
    assert other.digest == image.digest
    assert other.image.read_bytes() == image.image.read_bytes()
    assert other.sbom.read_bytes() == image.sbom.read_bytes()


def test_it_says_what_it_is_and_of_which_commit(image: Unpacked) -> None:
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.config["Labels"].items()}
    seconds = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert labels["title"] == "gpuward"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["revision"].removesuffix("-dirty") == revision()
    assert ("not committed" in image.progress) == labels["revision"].endswith("-dirty")
    assert datetime.fromisoformat(labels["created"]) == datetime.fromtimestamp(int(seconds), UTC)
    _, manifest, config = read_image(image.image)
    assert manifest["annotations"] == image.config["Labels"]
    assert config["created"] == labels["created"]


def test_it_is_run_by_nobody_in_particular_and_starts_the_operator(image: Unpacked) -> None:
    assert (image.config["User"], image.config["Entrypoint"]) == ("65532:65532", ["/usr/bin/gpuward"])
    assert image.config["Cmd"] == ["run", "--leader-elect"]


def test_there_is_no_program_but_python_and_ours(image: Unpacked) -> None:
    assert set(os.listdir(image.root / "usr" / "bin")) == {
        "python3.13", "gpuward", "gpu-operator", "manage-crds", "cleanup-gpuclusters", *AGENTS}
    executable = {str(path.relative_to(image.root)) for path in image.root.rglob("*")
                  if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111 and ".so" not in path.name}
    assert {path for path in executable if not path.startswith(("usr/lib/python", "usr/local/lib/python"))} == {
        "usr/bin/python3.13", "usr/bin/gpuward"}
    assert [path for path in executable if (image.root / path).read_bytes().startswith(b"\x7fELF")] == ["usr/bin/python3.13"]
    for name in ("sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "pip", "pip3", "ld", "perl"):
        assert not [path for path in image.root.rglob(name) if path.is_file()]


def test_everything_is_roots_and_nothing_can_be_written_but_tmp(image: Unpacked) -> None:
    seen = 0
    with tarfile.open(image.image) as tar:
        for layer in read_image(image.image)[1]["layers"]:
            blob = tar.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
            with tarfile.open(fileobj=blob) as tree:
                for member in tree:
                    seen += 1
                    assert (member.uid, member.gid, member.mtime) == (0, 0, tar.getmember("index.json").mtime), member.name
                    assert member.isreg() or member.isdir() or member.issym(), member.name
                    assert member.issym() or member.name == "tmp" or not member.mode & OPEN, member.name
    assert seen > 1000


def test_every_module_is_compiled_and_compared_with_nothing(image: Unpacked) -> None:
    modules = [path for place in (STDLIB, SITE) for path in (image.root / place).rglob("*.py")]
    assert len(modules) > 500
    for module in modules:
        compiled = (module.parent / "__pycache__" / f"{module.stem}.cpython-313.pyc").read_bytes()
        assert int.from_bytes(compiled[4:8], "little") == UNCHECKED_HASH, module
        assert str(image.root).encode() not in compiled
        assert f"/{module.relative_to(image.root)}".encode() in compiled, module


def test_the_lists_of_what_was_installed_are_true(image: Unpacked) -> None:
    records = list((image.root / SITE).glob("*.dist-info/RECORD"))
    assert records
    for record in records:
        for name, digest, _ in csv.reader(record.read_text().splitlines()):
            content = (image.root / SITE / name).read_bytes()
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert digest in ("", f"sha256={found}"), name
    left = [path for path in (image.root / SITE).rglob("*") if path.name in ("direct_url.json", "uv_cache.json", "uv_build.json")]
    assert left == []


def test_the_bill_lists_what_is_there(image: Unpacked) -> None:
    listed = {(each["purl"].split(":")[1].split("/")[0], each["name"].lower().replace("_", "-"), each["version"])
              for each in image.components}
    installed = set()
    for folder in (image.root / SITE).glob("*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        installed.add(("generic" if name == "gpuward" else "pypi", name.lower().replace("_", "-"), version))
    debian = set()
    for file in (image.root / STATUS).iterdir():
        if file.suffix != ".md5sums" or not (file.parent / file.stem).exists():
            fields = dict(line.split(": ", 1) for line in file.read_text().splitlines() if ": " in line and line[0] != " ")
            debian.add(("deb", fields["Package"], fields["Version"]))
    assert listed == installed | debian
    assert {"aiohttp", "gpuward", "click"} <= {name for _, name, _ in installed}
    assert {"libc6", "libssl3t64", "python3.13-minimal"} <= {name for _, name, _ in debian}


def test_the_bill_is_of_this_image(image: Unpacked) -> None:
    bill = json.loads(image.sbom.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": image.digest.removeprefix("sha256:")}]
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    (ours,) = [ref for ref in needs if ref.startswith("pkg:generic/gpuward@")]
    assert any(ref.startswith("pkg:pypi/aiohttp@") for ref in needs[ours])


def test_every_file_of_the_system_is_one_of_a_package_that_is_listed(image: Unpacked) -> None:
    owned = {line.split("  ", 1)[1]: line.split("  ", 1)[0]
             for file in (image.root / STATUS).glob("*.md5sums") for line in file.read_text().splitlines()}
    ours = {*FILES, "usr/bin/gpuward"}
    for path in image.root.rglob("*"):
        name = str(path.relative_to(image.root))
        if path.is_symlink() or path.is_dir() or name.startswith((SITE, STATUS, "opt/")) or "__pycache__" in name or name in ours:
            continue
        assert hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == owned[name], name


def test_every_package_has_its_licence_there(image: Unpacked) -> None:
    for file in (image.root / STATUS).glob("*.md5sums"):
        assert (image.root / "usr" / "share" / "doc" / file.name.removesuffix(".md5sums") / "copyright").exists(), file.name
    for folder in (image.root / SITE).glob("*.dist-info"):
        assert "License" in (folder / "METADATA").read_text()


def test_no_link_leads_nowhere(image: Unpacked) -> None:
    assert set(FOLDERS) <= set(os.listdir(image.root))
    for path in image.root.rglob("*"):
        if path.is_symlink():
            to = os.readlink(path)
            assert (image.root / to[1:] if to.startswith("/") else path).exists(), path


def test_the_files_that_the_charts_hooks_ask_for_are_there(image: Unpacked) -> None:
    folder = image.root / "opt" / "gpu-operator"
    for name, crds in (("nvidia.com_clusterpolicies", ["clusterpolicies.nvidia.com"]),
                       ("nvidia.com_nvidiadrivers", ["nvidiadrivers.nvidia.com"]),
                       ("nvidia.com_gpuclusters", []), ("nfd-api-crds", [])):
        assert [crd["metadata"]["name"] for crd in crds_in([str(folder / f"{name}.yaml")])] == crds


def test_a_version_that_the_mirror_does_not_have_is_named_with_what_to_do(image: Unpacked, tmp_path: Path) -> None:
    checkout = another_checkout(tmp_path / "elsewhere", image.checkout)
    (checkout / ".cache" / "image").unlink()
    pins = checkout / "deploy" / "image" / "packages.txt"
    lines = [line if " libc6 " not in line else line.replace(line.split()[2], "2.0-1") for line in pins.read_text().splitlines()]
    pins.write_text("\n".join(lines) + "\n")
    done = build(checkout, tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no longer has libc6 2.0-1 (amd64): ./dev image --refresh" in done.stderr
    assert "Traceback" not in done.stderr
