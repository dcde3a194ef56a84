"""Whatever is written into any label or annotation that gpuward reads: no decision fails, and the nodes without it go on.

The keys are all that `names` holds and the values are drawn from the types of what is read, so that none can be forgotten.
"""

from __future__ import annotations

import typing
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuward import names
from gpuward.controllers.planning import Planner
from gpuward.labels.decide import decide_labels
from gpuward.labels.policy import label_policy
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import _Stored
from gpuward.model.states import State
from gpuward.model.views import PolicyView
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.sandbox.samples import sample_policy
from gpuward.upgrade.ledger import read_grants, stamp
from gpuward.wire.nodes import node_view
from gpuward.wire.pods import pod_view
from gpuward.wire.policies import policy_view
from tests import build
from tests.build import NOW
from tests.sampling import WHOLE

KEYS = sorted(value for value in vars(names).values() if isinstance(value, str) and "/" in value and " " not in value)
TIMES = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat) | st.sampled_from(
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-14:00"])
NUMBERS = st.integers() | st.sampled_from([0, -1, 2**63, 2**64, 10**400])


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Draw JSON of a type's shape, with wild values."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=False)
        return st.fixed_dictionaries({}, optional={field: values_of(hint) for field, hint in hints.items()})
    if kind is datetime:
        return TIMES
    if isinstance(kind, type) and issubclass(kind, State):
        return st.sampled_from([str(state) for state in State])
    if kind in (int, float):
        return NUMBERS
    if kind is bool:
        return st.booleans()
    parts = [part for part in typing.get_args(kind) if part is not Ellipsis]
    if parts:
        return st.one_of([values_of(part) for part in parts]) | st.lists(values_of(parts[0]), max_size=3)
    return st.none() | st.text(max_size=20)


def as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, ValueError):
        return str(value)


ANY = st.recursive(st.none() | st.booleans() | NUMBERS | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
                   | st.dictionaries(st.text(max_size=9), inner, max_size=3), max_leaves=9)
SHAPED = values_of(_Stored).map(lambda found: {"state": "pod-restart-required", "since": "2020-01-01T00:00:00Z"} | found)
VALUES = st.one_of(
    SHAPED.map(as_json), values_of(UpgradePolicy).map(as_json), ANY.map(as_json), TIMES, NUMBERS.map(str), st.text(max_size=30),
    st.sampled_from(["true", "false", *map(str, State), '{"a":' * 5000, "[" * 5000]),
    st.dictionaries(st.sampled_from(["n0", "n1"]), st.text(max_size=12)).map(as_json),
)
LABELS = st.dictionaries(st.sampled_from(KEYS), VALUES.map(lambda text: text[:63]), max_size=4)
NOTES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)


def raw_node(name: str, labels: dict[str, str], annotations: dict[str, str]) -> bytes:
    gpu = {names.NFD_GPU_LABELS[0]: "true", names.GPU_PRESENT: "true"}
    meta = {"name": name, "uid": f"uid-{name}", "labels": gpu | labels, "annotations": annotations}
    return msgspec.json.encode({"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})


def raw_pod(labels: dict[str, str], annotations: dict[str, str], grace: int) -> bytes:
    owner = {"kind": "ReplicaSet", "name": "x", "uid": "x", "controller": True}
    meta = {"name": "x", "namespace": "ml", "uid": "x", "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    return msgspec.json.encode({"metadata": meta, "spec": {"nodeName": "n0", "containers": [limits],
                                                           "terminationGracePeriodSeconds": grace}})


def policy_of(annotations: dict[str, str], broken: bool) -> PolicyView:
    body: dict[str, Any] = sample_policy()
    if broken:
        body["spec"]["driver"]["upgradePolicy"]["maxUnavailable"] = "nonsense"
    return policy_view(msgspec.json.encode(body | {"metadata": {"name": "p", "uid": "p", "annotations": annotations}}))


@settings(deadline=None, derandomize=True, max_examples=400 if WHOLE else 100, suppress_health_check=list(HealthCheck))
@given(LABELS, NOTES, LABELS, NOTES, NOTES, VALUES, st.integers(-1, 2**63), st.booleans())
def test_no_label_and_no_annotation_ends_a_pass(
    labels: dict[str, str], notes: dict[str, str], pod_labels: dict[str, str], pod_notes: dict[str, str],
    policy_notes: dict[str, str], ledger: str, grace: int, broken: bool,
) -> None:
    nodes = {"n0": node_view(raw_node("n0", labels, notes)), "n1": node_view(raw_node("n1", {}, {}))}
    pods = [build.driver_pod("n0"), build.driver_pod("n1"), pod_view(raw_pod(pod_labels, pod_notes, grace))]
    facts = build.cluster(nodes.values(), pods)
    grants = {**read_grants(ledger), "n0": stamp(nodes["n0"])}
    facts = msgspec.structs.replace(facts, grants=grants, policies=(policy_of(policy_notes, broken),))
    drivers = PolicyReader().read(facts)
    upgrades = build.policy(parallel=0, unavailable="100%")
    for policy in (upgrades, build.PAUSED, drivers.policy.upgrades):
        for seen in (facts, msgspec.structs.replace(facts, grants=None)):
            plan = Planner().decide(seen, [policy], NOW)
            assert plan.nodes
    alone = Planner().decide(msgspec.structs.replace(facts, grants=None), [upgrades], NOW)
    assert alone.nodes["n1"].state is State.POD_RESTART_REQUIRED
    if drivers.policy.valid is not None:
        assert not decide_labels(facts, label_policy(drivers.policy.valid), NOW).troubles
