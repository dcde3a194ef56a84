"""Objects of ours in which somebody has set what no later write may change: they are made anew, and no others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.kube.resources import GVR
from tests.journeys.stage import NEW, Object, Stage, on_stage
from tests.journeys.test_nvidiadriver import condition, make, nvidia_driver

SERVER_SET = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class Edit(NamedTuple):
    """Hold what somebody does to an object, and the field that it is about."""

    gvr: GVR
    name: str
    field: str
    change: Callable[[Object], Any]


EDITS = (
    Edit(resources.ROLE_BINDINGS, "nvidia-driver", "roleRef", lambda it: it["roleRef"].update(name="nobody")),
    Edit(resources.CLUSTER_ROLE_BINDINGS, "nvidia-driver", "roleRef", lambda it: it["roleRef"].update(name="nobody")),
    Edit(resources.RUNTIME_CLASSES, "nvidia", "handler", lambda it: it.update(handler="runc")),
    Edit(resources.CONFIG_MAPS, "nvidia-driver-startup-probe", "data", lambda it: it.update(immutable=True, data={"a": "b"})),
)


def place(edit: Edit) -> str:
    return names.DEFAULT_NAMESPACE if edit.gvr.namespaced else ""


async def made_otherwise(stage: Stage, edit: Edit, *, owned: bool) -> Object:
    """Delete an object and make it as somebody else would have it; return what it was."""
    before = (await stage.user.get(edit.gvr, edit.name, place(edit))).object()
    other = (await stage.user.get(edit.gvr, edit.name, place(edit))).object()
    gone = (*SERVER_SET, *(() if owned else ("ownerReferences",)))
    other["metadata"] = {key: value for key, value in other["metadata"].items() if key not in gone}
    edit.change(other)
    await stage.user.delete(edit.gvr, edit.name, place(edit))
    await stage.user.create(edit.gvr, other)
    return before


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: str(edit.gvr))
def test_what_nobody_may_change_any_more_is_made_anew(edit: Edit) -> None:
    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.installed()
        before = await made_otherwise(stage, edit, owned=True)
        await stage.rest(60)
        now = (await stage.user.get(edit.gvr, edit.name, place(edit))).object()
        assert now[edit.field] == before[edit.field]
        assert stage.policy_status()["state"] == "ready"
        await stage.upgrade_to()
        await stage.upgraded(NEW)

    story()


@on_stage(gpu_nodes=1)
async def test_what_is_somebody_elses_is_not_deleted(stage: Stage) -> None:
    await stage.installed()
    await made_otherwise(stage, EDITS[2], owned=False)
    await stage.rest(60)
    assert (await stage.user.get(EDITS[2].gvr, "nvidia")).object()["handler"] == "runc"
    assert "RuntimeClass nvidia cannot be written" in stage.condition()["message"]


@on_stage(gpu_nodes=2)
async def test_an_immutable_configmap_takes_another_owner(stage: Stage) -> None:
    """Its data are right: they belong to one more NVIDIADriver from now on."""
    await stage.label("gpu-2", "pool", "other")
    await make(stage, nvidia_driver("all", default=True))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.installed()
    probe = EDITS[3]
    await stage.user.patch_merge(probe.gvr, probe.name, {"immutable": True}, place(probe))
    await make(stage, nvidia_driver("other"))
    await stage.rest(120)
    assert (condition(stage, "all")[0], condition(stage, "other")[0]) == ("ready", "ready")
    now = (await stage.user.get(probe.gvr, probe.name, place(probe))).object()
    assert {owner["name"] for owner in now["metadata"]["ownerReferences"]} == {"all", "other"}
