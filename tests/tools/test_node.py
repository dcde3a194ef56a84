"""What `./dev node` works out before anything runs."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml
from tools.node import image, network, registry, standins

from tests.operands.build import EXAMPLES, objects, states


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


def test_the_stand_ins_have_the_names_that_the_rendered_operands_ask_for() -> None:
    wanted = {container["image"] for obj in objects(states().values()).values() if obj["kind"] == "DaemonSet"
              for spec in [obj["spec"]["template"]["spec"]] for container in (*spec["initContainers"], *spec["containers"])}
    policy = yaml.safe_load((EXAMPLES / "clusterpolicy.yaml").read_text(encoding="utf-8"))
    missing = wanted - standins.configs(policy, [policy["spec"]["driver"]["version"]]).keys()
    assert {name.rpartition("/")[2].partition(":")[0] for name in missing} == {"k8s-mig-manager"}, "it runs where MIG is, only"


def test_images_of_one_content_start_differently(tmp_path: Path) -> None:
    image.write({"a:1": {"Env": ["V=1"]}, "a:2": {"Env": ["V=2"]}}, {"bin/p": b"x", "bin/q": "p"}, tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        files = {each.name: file.read() for each in tar if (file := tar.extractfile(each))}

    def blob(digest: str) -> bytes:
        return files[f"blobs/sha256/{digest.removeprefix('sha256:')}"]

    manifests = [json.loads(blob(each["digest"])) for each in json.loads(files["index.json"])["manifests"]]
    assert [json.loads(blob(each["config"]["digest"]))["config"]["Env"] for each in manifests] == [["V=1"], ["V=2"]]
    (layer,) = {each["layers"][0]["digest"] for each in manifests}
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as tar:
        assert {each.name: each.linkname for each in tar} == {"bin/p": "", "bin/q": "p"}
