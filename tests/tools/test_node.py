"""What `./dev node` works out before anything runs."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from tools.node import image, network, registry


@pytest.mark.parametrize(("name", "path"), [
    ("nvcr.io/nvidia/driver:580", "nvidia/driver:580"),
    ("docker.io/library/probe:1", "library/probe:1"),
    ("localhost/probe:1", "probe:1"),
    ("10.89.0.1:5000/a/b@sha256:0", "a/b@sha256:0"),
    ("probe:1", "probe:1"),
    ("nvidia/driver:580", "nvidia/driver:580"),
])
def test_an_image_is_pushed_without_its_registry(name: str, path: str) -> None:
    assert registry.path(name) == path


def test_an_image_holds_what_its_digests_say(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    image.pack("localhost/program:1", program, tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        files = {each.name: tar.extractfile(each) for each in tar}
        contents = {name: file.read() for name, file in files.items() if file}
    blobs = {name.rpartition("/")[2]: content for name, content in contents.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    (manifest,) = json.loads(contents["index.json"])["manifests"]
    assert manifest["annotations"] == {"io.containerd.image.name": "localhost/program:1"}
    named = json.loads(blobs[manifest["digest"].removeprefix("sha256:")])
    assert {each["digest"].removeprefix("sha256:") for each in (manifest, named["config"], *named["layers"])} == set(blobs)


def test_no_two_nodes_share_an_address() -> None:
    nodes = network.addresses(network.MOST_NODES)
    assert len({node.ip for node in nodes} | {network.ROUTER}) == len({node.pods for node in nodes}) + 1 == len(nodes) + 1
