"""The text of configuration files, which is the same whichever library writes it: another text would be another ConfigMap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gpuward.operands import mig_profiles
from gpuward.operands.config_files import DUMPER, yaml_text
from gpuward.operands.sandboxes import vgpu_layouts


@pytest.mark.parametrize("layouts", [mig_profiles.layouts, vgpu_layouts.layouts])
def test_text_does_not_depend_on_how_pyyaml_was_built(layouts: Callable[[], dict[str, Any]]) -> None:
    document = {"version": "v1", "configs": layouts()}
    assert yaml_text(document) == yaml.dump(document, Dumper=yaml.SafeDumper, sort_keys=False)


def test_keys_stay_in_their_order() -> None:
    assert yaml_text({"b": 1, "a": [2]}) == "b: 1\na:\n- 2\n"


def test_the_fast_library_is_there_where_tests_run() -> None:
    assert DUMPER is not yaml.SafeDumper
