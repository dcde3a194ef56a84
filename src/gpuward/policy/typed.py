"""The objects of a kind, typed: the schema is walked once for each version of a spec, whoever asks and whatever else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from gpuward.crd import decode
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.crd.nvidiadriver import NVIDIADriver
from gpuward.errors import PolicyError
from gpuward.model.views import PolicyView

R = TypeVar("R", ClusterPolicy, NVIDIADriver)

Typed = tuple[R | None, tuple[PolicyError, ...]]
"""An object, if it can be decoded, and what is wrong with it."""


class TypedOnce(Generic[R]):
    """Decode and check each version of the objects of one kind once."""

    def __init__(self, kind: type[R], rules: Callable[[R], list[PolicyError]]) -> None:
        """Take what says why an object that can be decoded cannot be followed."""
        self._kind: type[R] = kind
        self._rules: Callable[[R], list[PolicyError]] = rules
        self._known: dict[str, tuple[int, Typed[R]]] = {}

    def read(self, view: PolicyView) -> Typed[R]:
        """Return the object; its status is as it was when this version was first read."""
        known = self._known.get(view.uid)
        if known is None or known[0] != view.generation:
            resource, problems = decode.typed(view.body, self._kind)
            if resource is not None:
                problems = self._rules(resource)
            else:
                problems.extend(self._besides(view, tuple(problems)))
            known = self._known[view.uid] = (view.generation, (resource, tuple(problems)))
        return known[1]

    def _besides(self, view: PolicyView, problems: Sequence[PolicyError]) -> Iterator[PolicyError]:
        """Yield what else is wrong with an object that cannot be decoded, as far as that does not follow from what is missing."""
        part = decode.in_part(view.body, problems, self._kind)
        sections = {problem.field.rpartition(".")[0] for problem in problems}
        for problem in self._rules(part) if part is not None else ():
            if problem.field.rpartition(".")[0] not in sections and _is_written(view.body, problem.field):
                yield problem

    def forget_all_but(self, views: Collection[PolicyView]) -> None:
        """Forget objects that are gone."""
        if len(self._known) > len(views):
            there = {view.uid for view in views}
            self._known = {uid: known for uid, known in self._known.items() if uid in there}


def _is_written(body: Mapping[str, Any], field: str) -> bool:
    """Tell whether a field has a value in an object."""
    inner: object = body
    for key in field.split("."):
        if not isinstance(inner, Mapping) or key not in inner:
            return False
        inner = inner[key]
    return True
