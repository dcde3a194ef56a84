"""Find views by what they say, kept up to date change by change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from gpuward.kube.cache.projection import K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, KeysView


class Index(Generic[K, V]):
    """List keys under the values that a function reads from their views."""

    def __init__(self, of: Callable[[V], Iterable[Hashable]]) -> None:
        self._of = of
        self._keys: dict[Hashable, dict[K, None]] = {}  # dicts keep the order of arrival, so runs repeat exactly

    def keys(self, value: Hashable) -> KeysView[K]:
        """Return the keys listed under a value."""
        return self._keys.get(value, {}).keys()

    def move(self, key: K, old: V | None, new: V | None) -> None:
        """Take a view's replacement by another; None means absent."""
        before = dict.fromkeys(self._of(old)) if old is not None else {}
        after = dict.fromkeys(self._of(new)) if new is not None else {}
        for value in before:
            if value in after:
                continue
            listed = self._keys[value]
            del listed[key]
            if not listed:
                del self._keys[value]
        for value in after:
            self._keys.setdefault(value, {})[key] = None
