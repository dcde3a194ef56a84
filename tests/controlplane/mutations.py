"""Policies and nodes that nobody meant: what is right, changed at random places, as an administrator writes them."""

from __future__ import annotations

import copy
import http.client
import json
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import strategies as st
from tools.controlplane.server import Server

from gpuward import names
from gpuward.model.states import State
from tests.operands.build import EXAMPLES

Path = tuple[str, ...]
Body = dict[str, Any]

VALUES: list[Any] = [
    None, "", "x" * 300, -1, 0, 7, 2**31, 2**63 - 1, 2**70, 1.5, True, False, [], {}, [{}], ["a"], {"a": "b"}, {"a b": "c d"},
    "0", "25%", "-5%", "200%", "a b", "a=b", "a in (b", "!!", "1h", "-1h", "\u00fc", "\n", "../..", "sha256:1f", "${X}",
    [{"name": ""}],
    [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"limits": {"cpu": "much"}}, "Always", "OnDelete", "true",
]
STATES = [*map(str, State), "upgrade-perhaps", "", "UPGRADE-DONE"]
TEXTS = ["", "null", "true", "false", "{", "[]", "{}", "1", "-1", "9" * 400, "2026-11-21T00:00:00Z", "9999-12-31T23:59:59Z",
         '{"state":"upgrade-done"}', '{"state":"upgrade-failed","since":"2026-11-21T00:00:00Z"}',
         '{"state":"drain-required","since":"0001-01-01T00:00:00Z","cordon":"nobody"}', "[" * 5000, "\u00fc\u0000", "a" * 4000]
LABELS = [names.UPGRADE_STATE, names.UPGRADE_SKIP, names.GPU_PRESENT, names.DEPLOY_OPERANDS, names.DEPLOY_DRIVER,
          names.WORKLOAD_CONFIG, names.MIG_CONFIG, names.MIG_CAPABLE, names.DRIVER_OWNER, names.NFD_OS_VERSION, names.NFD_KERNEL,
          *names.NFD_GPU_LABELS]
ANNOTATIONS = [names.UPGRADE_RECORD, names.UPGRADE_HISTORY, names.UPGRADE_REQUESTED, names.SAFE_LOAD,
               names.INITIALLY_UNSCHEDULABLE, names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.DISCOVERY_LOST,
               names.UPGRADE_ENABLED]
REMOVE = object()
OTHER_PLACES: list[Path] = [
    *(("driver", "upgradePolicy", *rest) for rest in (
        ("unknown",), ("waitForCompletion", "podSelector"), ("drain", "podSelector"))),
    *((part, key) for part in ("driver", "toolkit", "daemonsets", "validator", "dcgmExporter")
      for key in ("env", "args", "resources", "tolerations", "version", "labels", "annotations", "image")),
    ("daemonsets", "rollingUpdate", "maxUnavailable"), ("dcgmExporter", "service", "type"), ("validator", "plugin", "env"),
    ("driver", "upgradePolicy", "maxUnavailable"), ("driver", "livenessProbe"), ("gds", "enabled"), ("cdi", "nriPluginEnabled"),
]


def example() -> Body:
    """Return the ClusterPolicy from which all others are made."""
    body: Body = yaml.safe_load((EXAMPLES / "clusterpolicy.yaml").read_text(encoding="utf-8"))
    return body


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    for key, child in value.items() if isinstance(value, dict) else ():
        yield from _places(child, (*path, key))


def _changed(spec: Any, path: Path, value: Any) -> None:
    """Change what is at a path, unless an earlier change took the way there away."""
    *way, last = path
    for key in way:
        if not (isinstance(spec, dict) and key in spec):
            return
        spec = spec[key]
    if isinstance(spec, dict) and value is REMOVE:
        spec.pop(last, None)
    elif isinstance(spec, dict):
        spec[last] = value


@st.composite
def policy_specs(draw: st.DrawFn) -> Body:
    """Draw the spec of a ClusterPolicy with one to three changes, most of them of the right type."""
    spec: Body = copy.deepcopy(example()["spec"])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([*_places(spec), *OTHER_PLACES]))
        fitting = [value for value in VALUES if type(value) is type(_found(spec, path))]
        at_random: int = draw(st.integers(0, 3))
        _changed(spec, path, draw(st.sampled_from(fitting if fitting and at_random else [REMOVE, *VALUES])))
    return spec


def _found(spec: Any, path: Path) -> Any:
    """Return what is at a path; where there is nothing, a string: most fields are."""
    for key in path:
        spec = spec.get(key, "") if isinstance(spec, dict) else ""
    return {} if path[-1] in ("labels", "annotations", "resources") else [] if path[-1] in ("env", "tolerations") else spec


@st.composite
def node_patches(draw: st.DrawFn) -> Body:
    """Draw a merge patch of a node's labels, annotations and cordon."""
    labels = draw(st.dictionaries(st.sampled_from(LABELS), st.sampled_from([None, *STATES, *TEXTS[:8]]), max_size=2))
    annotations = draw(st.dictionaries(st.sampled_from(ANNOTATIONS), st.sampled_from([None, *TEXTS, *STATES]), max_size=3))
    cordoned = draw(st.sampled_from([None, None, True, False]))
    return {"metadata": {"labels": labels, "annotations": annotations},
            "spec": {} if cordoned is None else {"unschedulable": cordoned}}


def undoing(node: Body) -> Body:
    """Return the merge patch that makes of a node what it is now again."""
    meta: Body = node["metadata"]
    return {"metadata": {"labels": {key: meta["labels"].get(key) for key in LABELS},
                         "annotations": {key: meta["annotations"].get(key) for key in ANNOTATIONS}},
            "spec": {"unschedulable": None}}


class Writer(Server):
    """Change objects as the administrator, over one connection."""

    _open: http.client.HTTPSConnection | None = None

    def patch(self, path: str, body: object, kind: str) -> tuple[int, Body]:
        """Return the status and the body of the answer; kind is `json` or `merge`."""
        if self._open is None:
            self._open = self._connect()
        headers = {**self.headers, "Content-Type": f"application/{kind}-patch+json"}
        self._open.request("PATCH", path, json.dumps(body), headers)
        answer = self._open.getresponse()
        found: Body = json.loads(answer.read())
        return answer.status, found

    def close(self) -> None:
        """End the connection."""
        if self._open is not None:
            self._open.close()
