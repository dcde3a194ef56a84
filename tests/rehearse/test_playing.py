"""A play: what it does to the process that it is played in."""

from __future__ import annotations

import gc

import pytest

from gpuward.rehearse.playing import collecting_less


@collecting_less()
def frozen() -> tuple[int, int, int]:
    gc.freeze()
    if not gc.get_freeze_count():
        raise ValueError("nothing is frozen")
    return gc.get_threshold()


@collecting_less()
def fails() -> None:
    gc.freeze()
    raise ValueError("a bug")


def test_the_collector_is_after_a_play_as_it_was_before() -> None:
    before = gc.get_threshold()
    assert frozen() != before
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
    with pytest.raises(ValueError, match="a bug"):
        fails()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


class Left:
    alive = 0

    def __init__(self) -> None:
        self.own = self
        Left.alive += 1

    def __del__(self) -> None:
        Left.alive -= 1


def test_what_an_earlier_play_has_left_is_not_kept_through_the_next() -> None:
    Left()
    with collecting_less():
        gc.freeze()
        assert not Left.alive
