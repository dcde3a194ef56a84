"""The differential oracle: a sample of its sequences, and that it tells what is left behind and shrinks to why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tools.oracle.compare import compared, differences
from tools.oracle.many import played
from tools.oracle.played import Verdict
from tools.oracle.sequence import Change, Sequence, can_be_followed, draw
from tools.oracle.shrink import shrink

SAMPLE = range(20)


@pytest.mark.parametrize("seed", SAMPLE)
def test_a_changed_cluster_is_as_freshly_installed(seed: int) -> None:
    found = played(seed, 4)
    assert found.wrong == (), f"./dev oracle --seed {seed} --most 4"


def test_a_seed_is_one_sequence_and_ends_with_what_can_be_followed() -> None:
    assert draw(5) == draw(5) != draw(6)
    assert all(can_be_followed(draw(seed).last) for seed in range(10))


def test_a_field_that_is_left_and_one_that_is_missing_are_told() -> None:
    def service(**spec: object) -> dict[str, object]:
        return {"kind": "Service", "metadata": {"name": "a", "uid": "1", "resourceVersion": "7"}, "spec": spec}

    found, fresh = compared([service(type="NodePort", extra=1, clusterIP="10.0.0.1")]), compared([service(type="ClusterIP")])
    assert differences(found, fresh) == ["Service a: spec.extra is 1, freshly installed absent",
                                         "Service a: spec.type is 'NodePort', freshly installed 'ClusterIP'"]
    assert differences(found, found) == []
    assert differences({}, fresh) == ["Service a: is missing"]


def test_a_condition_is_compared_unless_it_says_that_no_node_is_left() -> None:
    def policy(*reasons: str) -> dict[str, object]:
        return {"kind": "ClusterPolicy", "metadata": {"name": "cluster-policy", "uid": "u"},
                "status": {"conditions": [{"type": "DriverUpgrade", "reason": reason} for reason in reasons]}}

    told = [differences(compared([policy(reason)]), compared([policy()])) for reason in ("NoNodes", "UpToDate")]
    assert [len(each) for each in told] == [0, 1]


def test_a_failing_sequence_shrinks_to_the_changes_that_matter() -> None:
    one, other = Change("", ("psa", "enabled"), True), Change("", ("gfd", "enabled"), False)
    whole = msgspec.structs.replace(draw(1), changes=(other, one, other), monitors=True, workload="container")

    def run(sequence: Sequence) -> Verdict:
        return Verdict(1, ("Namespace a: is left behind",) if one in sequence.changes else ())

    smallest, found = shrink(whole, run(whole), run=run)
    assert (smallest.changes, smallest.monitors, smallest.workload) == ((one,), False, "")
    assert found.wrong


def test_dev_knows_it() -> None:
    assert "tools.oracle" in (Path(__file__).parents[2] / "dev").read_text(encoding="utf-8")
