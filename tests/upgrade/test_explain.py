"""Every hold has a sentence, and every hold that is made has what its sentence needs."""

from __future__ import annotations

import string

import pytest

from gpuward.model.counting import template
from gpuward.model.domains import DomainLimit
from gpuward.model.explain import arguments, sentence
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.sentences import SENTENCES
from gpuward.model.switches import Switches
from gpuward.model.views import Ref
from gpuward.model.waits import BudgetUsedUp, EvictionRefused, FailureBudgetSpent, Limit, Paused, WaitsFor
from tests.waits import held_by


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_neither_begins_like_one_nor_ends_like_one(reason: Reason) -> None:
    text = SENTENCES[reason]
    assert not text.endswith((".", " "))
    assert text[0] == text[0].lower()


def fields(reason: Reason) -> list[str]:
    return [field for _, field, _, _ in string.Formatter().parse(SENTENCES[reason]) if field]


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_says_all_its_arguments(reason: Reason) -> None:
    hold = Hold(Paused(Switches("ClusterPolicy a", machines="a"))) if reason is Reason.PAUSED else held_by(reason)
    told = arguments(hold.what)
    assert all(told[field] for field in fields(reason))
    assert all(str(told[field]) in sentence(hold) for field in fields(reason))
    assert "{" not in sentence(hold)


@pytest.mark.parametrize(("what", "text"), [
    (BudgetUsedUp(Ref("ml", "a"), Ref("ml", "b"), 1, 1),
     "disruption budget ml/b lets 1 pod go now and nodes ahead of this one need 1; pod ml/a is under it"),
    (BudgetUsedUp(Ref("ml", "a"), Ref("ml", "b"), 0, 2),
     "disruption budget ml/b lets none go now; pod ml/a is under it"),
    (Limit(Reason.UNAVAILABLE_LIMIT, 1, 1, ("a",)), "maxUnavailable allows 1, and 1 is out of service already (a)"),
    (DomainLimit(Reason.DOMAIN_LIMIT, "x", 4, 4, ("a", "b", "c")),
     "the RolloutPolicy lets 4 nodes of a domain be out of service, and of x 4 are already (a, b, c and 1 more)"),
    (DomainLimit(Reason.DOMAIN_LIMIT, "x", 4, 4, ("n",), ("a", "b", "c")),
     "the RolloutPolicy lets 4 domains be disturbed, and this node's (x) has to wait: "
     "4 are disturbed or half done (a, b, c and 1 more); out of service: n"),
    (FailureBudgetSpent(4, 3, 9, ("a", "b", "c")),
     "the rollout is paused: 4 of 9 nodes failed (a, b, c and 1 more) and 3 may; "
     "see `gpuward explain NODE`, then `gpuward resume`"),
    (EvictionRefused(Ref("ml", "a"), "no", 1), "pod ml/a may not be evicted now (1 attempt): no"),
    (EvictionRefused(Ref("ml", "a"), "no", None), "pod ml/a may not be evicted now: no"),
])
def test_one_is_counted_otherwise_than_many(what: WaitsFor, text: str) -> None:
    assert sentence(Hold(what)) == text


def test_a_page_shows_what_a_sentence_leaves_open_by_name() -> None:
    assert "lets {allowed} pods go now" in template(SENTENCES[Reason.BUDGET_USED_UP])
    assert not any("|" in template(SENTENCES[reason]) for reason in Reason)


def test_a_limit_of_none_blames_no_other_node() -> None:
    held = Hold(Limit(Reason.NO_NODE_MAY_START, 0, 0, (), "a"))
    assert sentence(held) == "maxUnavailable of NVIDIADriver a allows 0: no node may be taken out of service"


def test_braces_in_what_others_wrote_are_left_as_they_are() -> None:
    hold = Hold(EvictionRefused(Ref("default", "a"), "budget {x} says no {0}", 3))
    assert sentence(hold) == "pod default/a may not be evicted now (3 attempts): budget {x} says no {0}"
