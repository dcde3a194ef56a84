"""How often the objects of policies are looked through: once to check and once to decode each version, whatever else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import ItemsView
from typing import Any, ClassVar

import msgspec
import pytest

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.nvidiadrivers import PolicyReader
from tests.policy.test_clusterpolicy import view
from tests.policy.test_nvidiadrivers import LEFT, cluster_policy, driver
from tests.policy.test_rolloutpolicy import rollout

CHECKED_AND_DECODED = 2


class Watched(dict[str, Any]):
    """A spec that counts how often it is looked through."""

    walks: ClassVar[Counter[tuple[str, int]]] = Counter()
    whose: tuple[str, int] = ("", 0)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self.walks[self.whose] += 1
        return super().items()


@pytest.fixture
def walks() -> Counter[tuple[str, int]]:
    Watched.walks.clear()
    return Watched.walks


def watched(policy: PolicyView, generation: int = 1, resumed: str = "") -> PolicyView:
    spec = Watched(policy.body["spec"])
    spec.whose = policy.name, generation
    body = {**policy.body, "spec": spec, "metadata": {**policy.body["metadata"], "annotations": {names.RESUMED_AT: resumed}}}
    return msgspec.structs.replace(policy, body=body, generation=generation)


def test_each_version_is_looked_through_once_whatever_else_changes(walks: Counter[tuple[str, int]]) -> None:
    reader = PolicyReader()
    at = "2026-01-31T12:00:00Z"
    policy, one, other = watched(cluster_policy(**LEFT)), watched(driver("a")), watched(driver("b"))
    rollouts = (watched(rollout("r")),)
    reader.read(Snapshot("ns", policies=(policy,), drivers=(one, other), rollout_policies=rollouts))
    assert walks == {("p", 1): CHECKED_AND_DECODED, ("a", 1): CHECKED_AND_DECODED, ("b", 1): CHECKED_AND_DECODED,
                     ("r", 1): CHECKED_AND_DECODED}
    before = dict(walks)
    resumed = watched(cluster_policy(**LEFT), resumed=at), watched(driver("a"), resumed=at)
    reader.read(Snapshot("ns", policies=resumed[:1], drivers=(resumed[1], other), rollout_policies=rollouts))
    reader.read(Snapshot("ns", policies=(policy,), drivers=(one, other), rollout_policies=rollouts))
    assert walks == before, "an annotation is no new version"
    newer = (watched(rollout("r"), 2),)
    reader.read(Snapshot("ns", policies=(policy,), drivers=(one, other), rollout_policies=newer))
    assert walks == {**before, ("r", 2): CHECKED_AND_DECODED}, "a RolloutPolicy that changes is no new version of the others"
    reader.read(Snapshot("ns", policies=(policy,), drivers=(watched(driver("a"), 2), other), rollout_policies=newer))
    assert walks == {**before, ("r", 2): CHECKED_AND_DECODED, ("a", 2): CHECKED_AND_DECODED}


def test_what_cannot_be_decoded_is_looked_through_again_for_what_else_is_wrong(walks: Counter[tuple[str, int]]) -> None:
    reader = PolicyReader()
    broken = watched(view(maxParallelUpgrades="x"))
    for annotation in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"):
        body = {**broken.body, "metadata": {"name": "p", "annotations": {names.RESUMED_AT: annotation}}}
        found = reader.read(Snapshot("ns", policies=(msgspec.structs.replace(broken, body=body),)))
        assert found.policy.problems
    assert walks == {("p", 1): CHECKED_AND_DECODED}
