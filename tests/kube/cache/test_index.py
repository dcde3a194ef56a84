"""Looking views up by what they say."""

from __future__ import annotations

from gpuward.kube.cache.index import Index


def test_a_view_is_listed_under_every_value_and_moves_with_it() -> None:
    index = Index[str, str](tuple)
    index.move("x", None, "ab")
    index.move("y", None, "bb")
    assert list(index.keys("b")) == ["x", "y"]
    index.move("x", "ab", "ac")
    assert list(index.keys("b")) == ["y"]
    assert [list(index.keys(value)) for value in "abc"] == [["x"], ["y"], ["x"]]
    index.move("x", "ac", None)
    index.move("y", "bb", "bb")
    assert [list(index.keys(value)) for value in "abc"] == [[], ["y"], []]
    assert list(index.keys("a")) == []
