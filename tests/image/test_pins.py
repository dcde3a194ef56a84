"""The files that the image is made from, or that name it: that they fit each other."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tools.image import packages
from tools.image.machines import MACHINES
from tools.image.packages import WANTED, Pin, Source, fetched, read_list

from tests.image.unpacked import ROOT


def test_each_machine_has_each_package_once_and_the_same_python() -> None:
    pins = read_list()
    assert sorted((pin.arch, pin.name) for pin in pins) == sorted((arch, name) for arch in MACHINES for name in WANTED)
    assert len({pin.version for pin in pins if "python" in pin.name}) == 1  # one compiles for the other
    assert {len(pin.sha256) for pin in pins} == {64}


def test_the_deployment_names_a_version_and_takes_the_one_that_is_there() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (deployment,) = [each for each in yaml.safe_load_all((ROOT / "deploy" / "operator.yaml").read_text())
                     if each and each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (f"gpuward:{version}", "IfNotPresent")


def test_a_package_in_the_cache_is_taken_by_its_bytes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = [Pin("amd64", name, "1", hashlib.sha256(name.encode()).hexdigest()) for name in WANTED]
    asked = []

    def download(arch: str, names: Sequence[str], source: Source) -> list[Pin]:
        asked.append(arch)
        for pin in pins:
            (tmp_path / f"{pin.sha256}.deb").write_text(pin.name)
        return pins

    monkeypatch.setattr(packages, "download", download)
    source = Source(("http://127.0.0.1:9", "http://127.0.0.1:9"), tmp_path)
    assert len(fetched("amd64", source, pins)) == len(WANTED)
    fetched("amd64", source, pins)
    assert asked == ["amd64"], "what came once does not come again"
    (tmp_path / f"{pins[3].sha256}.deb").write_text("not that package")
    assert [file.read_text() for file in fetched("amd64", source, pins)] == [*WANTED]
    assert asked == ["amd64", "amd64"]
