"""The last valid spec of a custom resource, whoever edited the annotation since."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuward import names
from gpuward.crd import validate
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.keptspec import LONGEST, spec_to_keep
from gpuward.policy.lastvalid import last_valid, to_remember

DRIVER = {"repository": "nvcr.io/nvidia", "image": "driver", "version": "580.95.05"}
VALID: dict[str, Any] = {"driver": {**DRIVER, "upgradePolicy": {"maxUnavailable": 2}}, "dcgm": {"enabled": False}}


def body(spec: dict[str, Any], kept: str | None = None) -> dict[str, Any]:
    annotations = {} if kept is None else {names.VALID_SPEC: kept}
    metadata = {"name": "p", "annotations": annotations}
    return {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": metadata, "spec": spec}


def found(kept: str | None) -> ClusterPolicy | None:
    return last_valid(body({"driver": {"version": 7}}, kept), ClusterPolicy, validate.cluster_policy)


def test_what_is_kept_is_the_policy_as_it_was_written() -> None:
    kept = spec_to_keep(body(VALID))
    assert kept is not None
    last = found(kept)
    assert last is not None
    assert json.loads(kept) == VALID
    assert (last.spec.driver.version, last.spec.dcgm.enabled, last.metadata["name"]) == ("580.95.05", False, "p")


def test_the_order_of_fields_is_no_change() -> None:
    kept = spec_to_keep(body(VALID))
    turned = dict(reversed(VALID.items()))
    assert spec_to_keep(body(turned)) == kept
    assert names.VALID_SPEC not in to_remember(body(turned, kept), "settings")


def test_a_spec_that_is_too_long_is_not_kept_and_takes_an_older_one_away() -> None:
    long = {"dcgmExporter": {"env": [{"name": "A", "value": "x" * LONGEST}]}}
    assert spec_to_keep(body(long)) is None
    assert to_remember(body(long, "{}"), "settings")[names.VALID_SPEC] is None
    assert names.VALID_SPEC not in to_remember(body(long), "settings")


@pytest.mark.parametrize("kept", [
    None, "", "{", "null", "7", "[]", '"x"', '{"driver": {"version": 7}}',
    '{"driver": {"upgradePolicy": {"maxUnavailable": "abc"}}}',
    '{"cdi": {"enabled": false, "nriPluginEnabled": true}}', "[" * 50_000, '{"driver":' * 5_000,
    json.dumps({"x": "y" * LONGEST}), "\ud800",
])
def test_what_is_not_valid_is_as_good_as_nothing(kept: str | None) -> None:
    assert found(kept) is None
