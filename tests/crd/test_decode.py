from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest

from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.decode import cluster_policy, nvidia_driver, to_object, violations_of
from gpuward.crd.generate import schema_for_reading
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.errors import PolicyError
from tests.crd.specimen import Path, full, leaves, replace

Kind = type[ClusterPolicy] | type[NVIDIADriver]
both = pytest.mark.parametrize("kind", [ClusterPolicy, NVIDIADriver], ids=["ClusterPolicy", "NVIDIADriver"])


def specimen(kind: Kind) -> dict[str, Any]:
    """An object with every field that the schema has."""
    made: dict[str, Any] = full(schema_for_reading(kind))
    return made | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a", "uid": "b"}}


def decode(obj: dict[str, Any], kind: Kind) -> ClusterPolicy | NVIDIADriver:
    return cluster_policy(obj) if kind is ClusterPolicy else nvidia_driver(obj)


@both
def test_no_field_is_lost_on_the_way_through_the_types(kind: Kind) -> None:
    # Every value here differs from its default except a few enums' first choices, which decode to the same again.
    obj = specimen(kind)
    again = to_object(decode(obj, kind))
    missing = set(leaves(obj)) - set(leaves(again))
    assert {path[-1] for path in missing} <= {"kernelModuleType", "driverType", "updateStrategy", "defaultWorkload",
                                             "mode", "enabled", "default", "autoUpgrade"}
    assert decode(again, kind) == decode(obj, kind)


WRONG: tuple[Any, ...] = ("text", -1, 3.5, [], {"x": "y"}, [None], True)


@both
def test_a_wrong_value_anywhere_decodes_or_is_named(kind: Kind) -> None:
    # The operands' sections are alike, so taking turns brings nearly every wrong value to nearly every kind of field.
    obj = specimen(kind)
    turns = zip(leaves(obj), cycle(WRONG), strict=False)
    spoiled = [problem for path, wrong in turns if (problem := refusal(obj, path, wrong, kind))]
    assert len(spoiled) > 100
    assert all(problem.field and problem.fix for problem in spoiled)


def refusal(obj: dict[str, Any], path: Path, wrong: Any, kind: Kind) -> PolicyError | None:
    """Decode with one value replaced, only for the time being because copies of the whole object are slow."""
    right = replace(obj, path, wrong)
    try:
        decode(obj, kind)
    except PolicyError as problem:
        return problem
    finally:
        replace(obj, path, right)
    return None


@both
def test_null_is_the_same_as_absent(kind: Kind) -> None:
    obj = specimen(kind)
    nulls = obj | {"spec": dict.fromkeys(obj["spec"])}
    assert decode(nulls, kind) == decode(obj | {"spec": {}}, kind)


@pytest.mark.parametrize("status", [
    None, {}, "ready", {"state": "unheardOf"}, {"state": "ready", "conditions": [{"type": "Ready"}]},
], ids=repr)
def test_a_status_that_cannot_be_read_counts_as_absent(status: Any) -> None:
    obj = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {"mig": {"strategy": "mixed"}}}
    assert cluster_policy(obj | {"status": status}) == cluster_policy(obj)
    assert violations_of(obj | {"status": status}, ClusterPolicy) == []


def test_a_status_is_read() -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Reconciled", "message": "",
                 "lastTransitionTime": "2026-01-31T12:00:00Z"}
    obj = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
           "status": {"state": "ready", "namespace": "gpu-operator", "conditions": [condition]}}
    status = cluster_policy(obj).status
    assert status is not None
    assert (status.state, status.namespace, status.conditions[0].reason) == ("ready", "gpu-operator", "Reconciled")
    assert to_object(cluster_policy(obj)) == obj


def test_unknown_fields_are_ignored() -> None:
    obj = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": {"driver": {"later": 1}}, "more": 2}
    assert cluster_policy(obj) == ClusterPolicy()


@pytest.mark.parametrize(("obj", "field", "value", "fix"), [
    ({"kind": "ConfigMap"}, "kind", "ConfigMap", "write ClusterPolicy"),
    ({"apiVersion": "nvidia.com/v2"}, "apiVersion", "nvidia.com/v2", "write nvidia.com/v1"),
    ({"spec": []}, "spec", [], "write a mapping"),
    ({"spec": {"driver": {"upgradePolicy": {"maxParallelUpgrades": -1}}}},
     "spec.driver.upgradePolicy.maxParallelUpgrades", -1, "write a whole number of at least 0"),
    ({"spec": {"driver": {"upgradePolicy": {"maxParallelUpgrades": "2"}}}},
     "spec.driver.upgradePolicy.maxParallelUpgrades", "2", "write a whole number of at least 0, without quotes"),
    ({"spec": {"driver": {"kernelModuleType": "closed"}}},
     "spec.driver.kernelModuleType", "closed", "write one of auto, open, proprietary"),
    ({"spec": {"driver": {"version": 550}}}, "spec.driver.version", 550, "write a string, that is, in quotes"),
    ({"spec": {"driver": {"resources": {"limits": {"cpu": 0.5}}}}}, "spec.driver.resources.limits.cpu", 0.5,
     "write a quantity such as 1, 500m or 2Gi, in quotes unless it is whole"),
    ({"spec": {"dcgmExporter": {"serviceMonitor": {"interval": "soon"}}}},
     "spec.dcgmExporter.serviceMonitor.interval", "soon", "write a duration such as 15s or 1m30s"),
    ({"spec": {"driver": {"enabled": "yes"}}}, "spec.driver.enabled", "yes", "write true or false, without quotes"),
    ({"spec": {"toolkit": {"env": [{"name": "A"}, {"value": "b"}]}}},
     "spec.toolkit.env[1].name", None, "add it: a string"),
    ({"spec": {"daemonsets": {"labels": {"a.b/c": 1}}}},
     "spec.daemonsets.labels['a.b/c']", 1, "write a string, that is, in quotes"),
])
def test_what_cannot_be_decoded_is_named_with_value_and_fix(
    obj: dict[str, Any], field: str, value: object, fix: str,
) -> None:
    with pytest.raises(PolicyError) as caught:
        cluster_policy({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"} | obj)
    assert (caught.value.field, caught.value.value, caught.value.fix) == (field, value, fix)


def test_every_violation_is_found() -> None:
    obj = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
           "spec": {"mig": {"strategy": "both"}, "toolkit": {"enabled": 1}, "daemonsets": {"tolerations": [{"key": 1}]}}}
    fields = [problem.field for problem in violations_of(obj, ClusterPolicy)]
    assert fields == ["spec.mig.strategy", "spec.toolkit.enabled", "spec.daemonsets.tolerations[0].key"]


def test_an_object_is_encoded_with_its_type() -> None:
    assert to_object(ClusterPolicy()) == {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
