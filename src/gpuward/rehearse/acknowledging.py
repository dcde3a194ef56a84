"""Acknowledge notices whose time is up for the owners of pods, where an answer is required: in a rehearsal nobody else would."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuward import names
from gpuward.model.notice import NoticeUnanswered
from gpuward.model.plan import Plan
from gpuward.rehearse.templates import PODS
from kubesandbox.store import Store


def acknowledge(store: Store, plan: Plan) -> bool:
    """Answer each notice that nodes wait for, for all pods of the node; tell whether there was one."""
    asked = {name: hold.what.id for name, hold in plan.holds.items() if isinstance(hold.what, NoticeUnanswered)}
    found = [pod for pod in store.list(PODS) if pod["spec"].get("nodeName") in asked] if asked else []
    answers = [(pod["metadata"], asked[pod["spec"]["nodeName"]]) for pod in found]
    new = [(meta, notice) for meta, notice in answers if (meta.get("annotations") or {}).get(names.ACKNOWLEDGED) != notice]
    for meta, notice in new:
        store.modify(PODS, meta["namespace"], meta["name"], partial(_note, notice))
    return bool(new)


def _note(notice: str, obj: dict[str, Any]) -> None:
    obj["metadata"].setdefault("annotations", {})[names.ACKNOWLEDGED] = notice
