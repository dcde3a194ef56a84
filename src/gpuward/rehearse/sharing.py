"""Equal parts of many objects, each kept once: most pods of an owner differ in little but their names.

Only for objects that nobody changes in place, as those of a store are.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Object = dict[str, Any]

packed: Final = msgspec.msgpack.Encoder().encode
"""Write an object as bytes, of which `unpacked` makes an equal one."""
_decode: Final = msgspec.msgpack.Decoder().decode


def unpacked(data: bytes) -> Object:
    """Return an object anew."""
    obj: Object = _decode(data)
    return obj


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


class Shared:
    """Remember the parts of objects that were seen, for as long as more objects come."""

    def __init__(self) -> None:
        self._seen: dict[bytes, Any] = {}

    def share(self, obj: Object) -> None:
        """Let an object have the parts of earlier ones where they are equal: what is in its metadata, its spec and so on."""
        for field, part in obj.items():
            if isinstance(part, dict):
                obj[field] = {name: self._once(value) for name, value in part.items()}

    def read(self, data: bytes) -> list[Object]:
        """Return the items of a list that is JSON, each shared before the next one is read.

        Raises:
            MsgspecError: it is none.
        """
        found = []
        for raw in msgspec.json.decode(data, type=_List).items:
            obj = msgspec.json.decode(raw, type=Object)
            self.share(obj)
            found.append(obj)
        return found

    def _once(self, value: Any) -> Any:
        return self._seen.setdefault(packed(value), value) if isinstance(value, dict | list) else value
