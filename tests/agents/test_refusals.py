"""Evictions that were refused: only where the right is lacking for a while is asking of no use."""

from __future__ import annotations

from gpuward import errors
from gpuward.agents.drivermanager.refusals import LONGEST_PAUSE, Refusals
from gpuward.model.views import Ref

POD, OTHER = Ref("ml", "train-1", "1"), Ref("ml", "train-2", "2")
BUDGET = errors.TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.")
NO_RIGHT = errors.Forbidden(
    'pods "train-1" is forbidden: User "system:serviceaccount:gpu-operator:nvidia-driver" cannot create resource "pods/eviction" '
    'in API group "" in the namespace "ml"')


def test_a_server_that_starts_in_the_middle_of_a_wait_ends_nothing() -> None:
    refusals = Refusals()
    assert not any(refusals.refused(POD, BUDGET, at) for at in range(0, 100, 10))
    assert not refusals.refused(POD, NO_RIGHT, 104.0)
    assert not refusals.refused(POD, BUDGET, 110.0)
    assert not refusals.refused(POD, NO_RIGHT, 118.0), "it was granted to ask in between"
    refusals.granted(OTHER)
    assert not refusals.refused(POD, NO_RIGHT, 130.0), "it was granted to evict in between"


def test_without_the_right_it_is_of_no_use() -> None:
    refusals = Refusals()
    assert [refusals.refused(pod, NO_RIGHT, at) for pod, at in ((POD, 0.0), (OTHER, 5.0), (POD, 10.0))] == [False, False, True]


def test_a_pod_is_asked_ever_later() -> None:
    refusals, now, pauses = Refusals(), 0.0, []
    for _ in range(5):
        refusals.refused(POD, BUDGET, now)
        pauses.append(next(pause / 10 for pause in range(1000) if refusals.is_due(POD, now + pause / 10)))
        now += pauses[-1]
    assert pauses == [2.0, 4.0, 8.0, LONGEST_PAUSE, LONGEST_PAUSE]
    assert refusals.is_due(OTHER, 0.0)
    assert set(refusals.told) == {POD}
    refusals.granted(POD)
    assert not refusals.told
