from __future__ import annotations

import pytest

from kubesandbox import jsonpath

OBJ = {"status": {"state": "ready", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Error", "status": "False"}]},
       "metadata": {"labels": {"example.com/present": "true"}}}


@pytest.mark.parametrize(("path", "found"), [
    (".status.state", ["ready"]), ("{.status.state}", ["ready"]), (".status.missing.deeper", []),
    (".status.conditions[0].type", ["Ready"]),
    (".status.conditions[-1].type", ["Error"]), (".status.conditions[9].type", []),
    (".status.conditions[*].type", ["Ready", "Error"]),
    ('.status.conditions[?(@.type=="Error")].status', ["False"]), (r".metadata.labels.example\.com/present", ["true"]),
    (".metadata.labels['example.com/present']", ["true"]),
])
def test_json_paths(path: str, found: list[str]) -> None:
    assert jsonpath.find(path, OBJ) == found


def test_a_path_that_is_not_understood() -> None:
    with pytest.raises(ValueError, match="not understood"):
        jsonpath.find(".a[?(@.b > 3)]", OBJ)
