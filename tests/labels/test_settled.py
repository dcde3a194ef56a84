"""What is remembered from one decision to the next is never what has changed since."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.labels.decide import decide_labels
from gpuward.labels.policy import LabelPolicy
from gpuward.labels.settled import Settled
from gpuward.model.owners import Claim
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, PodView
from tests.build import NOW

FRESH = NodeView("n0", "uid", labels={names.NFD_GPU_LABELS[0]: "true"})
POLICY = LabelPolicy(driver_upgrades=True)
LEFT = PodView("gpu-operator", "driver", phase="Running", orphan=True, labels={
    names.COMPONENT_LABEL: names.DRIVER_COMPONENT, names.PRECOMPILED: "true"})


def labelled() -> NodeView:
    """Return the node as it is once its patch is applied."""
    (patch,) = decide_labels(Snapshot("gpu-operator", {"n0": FRESH}), POLICY, NOW).patches
    wanted = {**FRESH.labels, **{key: value for key, value in patch.labels.items() if value is not None}}
    return msgspec.structs.replace(FRESH, labels=wanted, annotations={names.UPGRADE_ENABLED: "true"})


def test_a_node_that_is_right_is_looked_at_again_when_anything_about_it_changes() -> None:
    settled, right = Settled(), labelled()

    def patched(*nodes: NodeView, pods: tuple[PodView, ...] = (), policy: LabelPolicy = POLICY) -> list[str]:
        snapshot = Snapshot("gpu-operator", {node.name: node for node in nodes}, {"n0": pods})
        found = decide_labels(snapshot, policy, NOW, settled).patches
        assert found == decide_labels(snapshot, policy, NOW).patches
        return [patch.node.name for patch in found]

    assert patched(FRESH) == ["n0"]
    assert patched(FRESH) == ["n0"]
    assert patched(right) == []
    assert settled.holds(right, ())
    assert patched(right, pods=(LEFT,)) == ["n0"]
    assert patched(right, policy=LabelPolicy()) == ["n0"]
    assert patched(right) == []
    assert patched(msgspec.structs.replace(right, labels=FRESH.labels)) == ["n0"]
    assert patched() == []
    assert not settled.holds(right, ())


def test_a_node_that_waits_for_a_daemon_set_is_looked_at_again_when_that_is_made() -> None:
    there = {**labelled().labels, names.DRIVER_OWNER: "b", "pool": "a"}
    node = msgspec.structs.replace(FRESH, labels=there, annotations={names.UPGRADE_ENABLED: "true"})
    settled, policy = Settled(), LabelPolicy(claims=(Claim("a", {"pool": "a"}), Claim("b", {"pool": "b"})), driver_upgrades=True)
    of_b, of_a = (DaemonSetView("gpu-operator", name, uid=name, node_selector={names.DRIVER_OWNER: name}) for name in "ba")
    waiting = Snapshot("gpu-operator", {"n0": node}, daemonsets=(of_b,))
    assert decide_labels(waiting, policy, NOW, settled).patches == ()
    (patch,) = decide_labels(msgspec.structs.replace(waiting, daemonsets=(of_b, of_a)), policy, NOW, settled).patches
    assert patch.labels[names.DRIVER_OWNER] == "a"
