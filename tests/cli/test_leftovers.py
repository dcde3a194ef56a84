"""What of an operator has to stay on a node: as far as an object alone says it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.cli.leftovers import Cleaning, cleaning_of, goes_by_labels, has_any
from gpuward.model.record import UNTOLD_DRIVER, CordonOwner, Record, decode_record, encode_record
from gpuward.model.states import State

APPS = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "train", "uid": "u1", "controller": True}


def term(operator: str, key: str = names.GPU_PRESENT) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": ["true"]}


def chosen(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": [each]} for each in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def node(record: str = "", **spec: Any) -> bytes:
    annotations = {names.UPGRADE_RECORD: record} if record else None
    labels = {names.GPU_PRESENT: "true", names.DEPLOY_DRIVER: "true", names.DEPLOY_PREFIX + "dcgm": "false"}
    return msgspec.json.encode({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels,
                                             "annotations": annotations}, "spec": spec})


def pod(owner: dict[str, Any] | None = None, gpu: bool = True, **spec: Any) -> bytes:
    limits = {"limits": {"nvidia.com/gpu": "1"}} if gpu else {}
    return msgspec.json.encode({
        "metadata": {"name": "train", "namespace": "ml", "uid": "p", "ownerReferences": [owner] if owner else []},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": limits}], **spec}, "status": {"phase": "Running"},
    })


def record_of(cleaning: Cleaning) -> Record:
    assert cleaning.patch is not None
    text = cleaning.patch.annotations[names.UPGRADE_RECORD]
    assert text is not None
    return decode_record(text)


@pytest.mark.parametrize(("spec", "goes"), [
    ({}, False),
    ({"nodeSelector": {names.GPU_PRESENT: "true"}}, True),
    ({"nodeSelector": {names.WORKLOAD_CONFIG: "container"}}, False),
    (chosen(term("In")), True),
    (chosen(term("Exists", names.DEPLOY_DRIVER)), True),
    (chosen(term("In", "kubernetes.io/hostname"), term("Gt", names.DRIVER_OS)), True),
    (chosen(term("NotIn")), False),
    (chosen(term("DoesNotExist")), False),
    ({"affinity": None, "nodeSelector": None}, False),
])
def test_a_daemonset_whose_nodes_have_the_label_would_lose_them(spec: dict[str, Any], goes: bool) -> None:
    assert goes_by_labels({"spec": {"template": {"spec": spec}}}) is goes


@pytest.mark.parametrize(("owner", "stays"), [
    (None, True), (APPS, False), ({**APPS, "apiVersion": "apps.kruise.io/v1alpha1"}, True),
    ({**APPS, "kind": "ReplicaSet"}, True),
])
def test_labels_stay_by_which_a_pod_chose_the_node(owner: dict[str, Any] | None, stays: bool) -> None:
    found = cleaning_of(node(), [pod(owner, gpu=False, **chosen(term("In")))], names.DEFAULT_NAMESPACE)
    assert found.patch is not None
    assert set(found.patch.labels) == {names.DEPLOY_DRIVER} | (set() if stays else {names.GPU_PRESENT})


def test_of_an_upgrade_under_way_only_the_driver_stays_known() -> None:
    under_way = Record(State.VALIDATION_REQUIRED, since=5.0, started=5.0, target="t", cordon=CordonOwner.GPUWARD, loaded="d")
    found = cleaning_of(node(encode_record(under_way), unschedulable=True), [pod()], names.DEFAULT_NAMESPACE)
    assert record_of(found) == Record(since=5.0, loaded="d", forced=True)
    assert found.patch is not None
    assert found.patch.unschedulable is False


@pytest.mark.parametrize(("value", "lifted"), [("true", False), ("", None)])
def test_a_cordon_that_a_driver_manager_left_goes_with_what_tells_whose_it_is(value: str, lifted: bool | None) -> None:
    read = msgspec.json.decode(node(unschedulable=True))
    read["metadata"]["annotations"] = {names.DRIVER_MANAGER_CORDON: value} if value else None
    found = cleaning_of(msgspec.json.encode(read), [], names.DEFAULT_NAMESPACE)
    assert found.patch is not None
    assert found.patch.unschedulable is lifted


def test_a_cordon_that_is_somebody_elses_stays_under_a_driver_managers_note() -> None:
    read = msgspec.json.decode(node(unschedulable=True))
    read["metadata"]["annotations"] = {names.DRIVER_MANAGER_CORDON: "true"}
    read["metadata"]["managedFields"] = [{"manager": "kubectl-cordon", "operation": "Update", "fieldsType": "FieldsV1",
                                          "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    found = cleaning_of(msgspec.json.encode(read), [], names.DEFAULT_NAMESPACE)
    assert found.patch is not None
    assert found.patch.unschedulable is None


@pytest.mark.parametrize(("cordon", "offered", "stays"), [
    (CordonOwner.GPUWARD, {"nvidia.com/gpu": "8"}, True),
    (CordonOwner.GPUWARD, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}, True),
    (CordonOwner.GPUWARD, {"nvidia.com/gpu": "0", "cpu": "4"}, False),
    (None, {"nvidia.com/gpu": "8"}, False),
])
def test_a_driver_stays_known_where_pods_come_once_our_cordon_is_lifted(cordon: CordonOwner | None, offered: dict[str, str],
                                                                        stays: bool) -> None:
    record = Record(State.POD_RESTART_REQUIRED, since=5.0, started=5.0, target="t", loaded="d")
    if cordon is not None:
        record = msgspec.structs.replace(record, cordon=cordon)
    raw = msgspec.json.decode(node(encode_record(record), unschedulable=True), type=dict[str, Any])
    found = cleaning_of(msgspec.json.encode({**raw, "status": {"allocatable": offered}}), [], names.DEFAULT_NAMESPACE)
    assert any("still offers GPUs" in each for each in found.stays) is stays
    assert not stays or record_of(found).loaded == "d"


def test_of_a_record_that_cannot_be_read_no_driver_is_known() -> None:
    assert record_of(cleaning_of(node("{"), [pod()], names.DEFAULT_NAMESPACE)).loaded == UNTOLD_DRIVER


@pytest.mark.parametrize(("text", "pods"), [
    (encode_record(Record(State.DONE, loaded="d")), [pod(gpu=False)]), (encode_record(Record(State.DONE)), [pod()]), ("{", []),
])
def test_without_a_driver_or_without_users_of_it_the_record_goes(text: str, pods: list[bytes]) -> None:
    found = cleaning_of(node(text), pods, names.DEFAULT_NAMESPACE)
    assert found.patch is not None
    assert found.patch.annotations == {names.UPGRADE_RECORD: None}
    assert not found.stays


def test_what_people_set_is_not_ours() -> None:
    raw = msgspec.json.encode({"metadata": {"name": "n", "labels": {names.DEPLOY_DRIVER: "false", names.UPGRADE_SKIP: "true"}}})
    assert not has_any(raw)
    assert cleaning_of(raw, [], names.DEFAULT_NAMESPACE) == Cleaning()
