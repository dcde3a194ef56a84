"""What a cluster and its operator are like where nothing moves, without anything that only tells times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from gpuward import names
from gpuward.model.record import decode_record
from kubesandbox.sim.objects import is_ready

if TYPE_CHECKING:
    from tests.reliability.scene import Scene

GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
"""The end of a generated name."""
PASSING = re.compile(r"CrashLoopBackOff, (?=\d)")
"""The word for the pauses between restarts, which come and go."""
COUNTED = re.compile(r"\b(?:it was restarted (?:once|\d+ times)|\d+ (?:s|restarts?))\b")

Picture = dict[str, Any]


def take(scene: Scene, title: str) -> Picture:
    """Return a picture of everything that has to be the same after a disturbance."""
    return {
        "title": title,
        "nodes": {node["metadata"]["name"]: _node(node) for node in scene.gpu_node_objects()},
        "holds": {name: str(hold.reason) for name, hold in scene.operator.plan.holds.items()},
        "drivers": {node: scene.driver(node) for node in scene.states()},
        "pods": sorted(_pod(pod) for pod in (*scene.pods(), *scene.workload_pods())),
        "evicted": _by_app(scene.evicted),
        "policies": {name: list(found) for name, found in scene.policy_states().items()},
        "events": sorted({event_text(event) for event in _events(scene)}),
    }


def plain(text: str) -> str:
    """Return a text without generated names and counted time."""
    return COUNTED.sub("N", PASSING.sub("", GENERATED.sub("-*", text)))


def _node(node: dict[str, Any]) -> Picture:
    annotations = dict(node["metadata"].get("annotations") or {})
    text = annotations.pop(names.UPGRADE_RECORD, "")
    record: Picture = msgspec.to_builtins(decode_record(text)) if text else {}
    record = _without_times(record)
    record["pods"] = len(record.get("pods") or ())
    if failure := record.get("failure"):
        record["failure"] = [failure["state"], plain(failure["cause"]), failure["attempts"]]
    # NVIDIA's driver manager writes empty labels of operands that a node lacks, if anything still holds the driver when it looks.
    labels = {key: value for key, value in node["metadata"]["labels"].items() if value or not key.startswith(names.DEPLOY_PREFIX)}
    return {"labels": labels, "cordoned": bool(node["spec"].get("unschedulable")), "record": record,
            "annotations": sorted(annotations)}


def _without_times(record: Picture) -> Picture:
    """Return a record, and what it has of the upgrade under way, with whether there is a time in the place of each."""
    return {field: _without_times(value) if isinstance(value, dict) and field == "course" else bool(value)
            if isinstance(value, float) else value for field, value in record.items()}


def _pod(pod: dict[str, Any]) -> str:
    labels = pod["metadata"]["labels"]
    is_ending = bool(pod["metadata"].get("deletionTimestamp"))
    status = "ending" if is_ending else "ready" if is_ready(pod) else "not ready"
    return " ".join((labels.get("app", ""), pod["spec"].get("nodeName", "-"), labels.get(names.REVISION_HASH, ""), status))


def _by_app(evicted: Counter[str]) -> dict[str, int]:
    """Return how many pods of each app were evicted."""
    return dict(Counter(pod.partition("/")[0] for pod in evicted))


def _events(scene: Scene) -> list[Picture]:
    """Return the events of upgrades. Those about what holds a node are told from memory, and once only."""
    return [event for event in scene.sandbox.store.list("events", "default") if event["reason"] == names.DRIVER_EVENT_REASON]


def event_text(event: Picture) -> str:
    """Return what an event tells, without what differs from one telling to the next."""
    return plain(f"{event['involvedObject']['name']}: {event['message']}")


def differences(case: Picture, oracle: Picture, lost: Collection[str] = (), later: Collection[str] = ()) -> list[str]:
    """Return where a picture differs from the oracle's.

    Events that were in flight may be `lost`, and those that the oracle tells `later` may be told already.
    """
    found: list[str] = []
    _compare(case["title"], {**case, "events": 0}, {**oracle, "events": 0}, found)
    told, wanted = case["events"], oracle["events"]
    found += [f"{case['title']}: an event that should not be: {text}" for text in told if text not in (*wanted, *later)]
    return found + [f"{case['title']}: no event says: {text}" for text in wanted if text not in (*told, *lost)]


def _compare(place: str, case: object, oracle: object, found: list[str]) -> None:
    if isinstance(case, dict) and isinstance(oracle, dict):
        for key in sorted({*case, *oracle}):
            _compare(f"{place}/{key}", case.get(key), oracle.get(key), found)
    elif isinstance(case, list) and isinstance(oracle, list):
        found += [f"{place}: {item} is too much" for item in case if item not in oracle]
        found += [f"{place}: {item} is missing" for item in oracle if item not in case]
    elif case != oracle:
        found.append(f"{place} is {case!r}, not {oracle!r}")
