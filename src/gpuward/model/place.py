"""The namespace that the operator and its operands live in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuward.model.views import Ref


class PlaceView(msgspec.Struct, frozen=True):
    """See of the operator's namespace which pods the API server lets in there."""

    name: str
    uid: str = ""
    version: str = ""
    levels: Mapping[str, str] = {}
    """Its labels of pod security admission."""
    deleting: bool = False

    @property
    def ref(self) -> Ref:
        return Ref("", self.name, self.uid)
