"""Who asked for a driver, as managedFields tell it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.policy.asked import asked_by


def entry(by: str, time: str, *fields: str, **rest: Any) -> dict[str, Any]:
    owned: dict[str, Any] = {"f:spec": {"f:driver": {f"f:{field}": {} for field in fields}}}
    return {"manager": by, "time": time, "fieldsV1": owned} | rest


def body(*entries: Any) -> dict[str, Any]:
    return {"metadata": {"managedFields": list(entries)}}


def test_it_is_who_changed_the_driver_last() -> None:
    told = body(entry("helm", "2026-01-01T00:00:00Z", "image", "version"),
                entry("kubectl-edit", "2026-01-02T00:00:00Z", "version"))
    assert asked_by(told, "spec", "driver") == "kubectl-edit"


@pytest.mark.parametrize("later", [
    entry("gpuward", "2026-01-03T00:00:00Z", "version"), entry("kubectl-edit", "2026-01-03T00:00:00Z", "upgradePolicy"),
    entry("kubelet", "2026-01-03T00:00:00Z", "version", subresource="status"), entry("", "2026-01-03T00:00:00Z", "version"),
    entry("before-first-apply", "2026-01-03T00:00:00Z", "version"), entry("x", "2026-01-03T00:00:00Z", "version", manager={}),
    {"manager": "x", "fieldsV1": {"f:spec": {"f:toolkit": {}}}}, {"manager": "x"}, "nonsense", {"manager": "x", "fieldsV1": []},
], ids=["ours", "limits", "status", "nobody", "unknown", "no name", "elsewhere", "no fields", "nonsense", "a list"])
def test_others_did_not_ask(later: Any) -> None:
    assert asked_by(body(entry("helm", "2026-01-01T00:00:00Z", "version"), later), "spec", "driver") == "helm"


@pytest.mark.parametrize("untold", [{}, {"metadata": {}}, {"metadata": None}, {"metadata": {"managedFields": None}}, body()])
def test_nobody_may_tell(untold: dict[str, Any]) -> None:
    assert asked_by(untold, "spec", "driver") == ""
