"""The files that the image is made from, or that name it: that they fit each other."""

from __future__ import annotations

import tomllib

import yaml
from tools.image.machines import MACHINES
from tools.image.packages import WANTED, read_list

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
