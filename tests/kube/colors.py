"""Objects of which a cache keeps the color, for the tests of the cache."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuward import errors
from gpuward.kube.cache.cache import Cache, Change
from gpuward.kube.cache.projection import BY_NAME, Identity, Projection
from tests.kube.scripted import thing


class View(msgspec.Struct, frozen=True):
    name: str
    uid: str
    version: str
    color: str = ""
    deleting: bool = False
    namespace: str = ""


def view(raw: bytes) -> View | None:
    """Keep what has a color; refuse the color "broken"."""
    obj = msgspec.json.decode(raw)
    meta, color = obj["metadata"], obj.get("spec", {}).get("color", "")
    if color == "broken":
        raise errors.PolicyError("spec.color", color, "write a color")
    if not color:
        return None
    return View(meta["name"], meta["uid"], meta["resourceVersion"], color, "deletionTimestamp" in meta,
                meta.get("namespace", ""))


def identity(seen: View) -> Identity:
    return Identity(seen.namespace, seen.name, seen.uid, seen.version)


def same(old: View, new: View) -> bool:
    return msgspec.structs.replace(old, version=new.version) == new


def raw(name: str, version: int | str, color: str = "red", *, uid: str = "", **meta: Any) -> bytes:
    obj = thing(name, version, uid=uid, color=color)
    obj["metadata"] |= meta
    return msgspec.json.encode(obj)


class Watched:
    """Hold a cache with what its listener was told."""

    def __init__(self) -> None:
        self.cache = Cache(Projection(BY_NAME, view, identity, same), {"color": lambda seen: (seen.color,)})
        self.told: list[list[Change[str, View]]] = []
        self.cache.subscribe(self.told.append)

    def fill(self, version: int, *objects: bytes) -> None:
        listing = self.cache.listing()
        for each in objects:
            listing.add(each)
        listing.commit(str(version))

    def colors(self) -> dict[str, str]:
        return {name: seen.color for name, seen in self.cache.items()}

    def changed(self) -> list[str]:
        """Return the keys that the listener was told of since the last call."""
        keys = [change.key for changes in self.told for change in changes]
        self.told.clear()
        return keys
