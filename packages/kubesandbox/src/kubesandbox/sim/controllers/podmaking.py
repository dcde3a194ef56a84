"""How controllers make pods: in growing batches, telling of each refusal, and trying again later and later.

Facts from kube-controller-manager: the first batch has one pod and each the double of the one before; a batch in which something
was refused is the last; the object is looked at again after 5 ms, doubled up to 1000 s, or when something about it changes. That
what was missing is there again is no such change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubesandbox.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kubesandbox.sim.objects import Object
    from kubesandbox.sim.recorder import Recorder
    from kubesandbox.store import Store

FIRST_RETRY_SECONDS: Final = 0.005
LAST_RETRY_SECONDS: Final = 1000.0
FAILED_CREATE: Final = "FailedCreate"


class PodMaker:
    """Make pods for the objects of one controller."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    def make(self, owner: Object, pods: Sequence[Callable[[], Object]]) -> tuple[int, ApiError | None]:
        """Create pods; return how many were made, and the first refusal if there was one.

        A namespace that is being deleted takes no pods, and nobody complains of that.
        """
        made, batch, start = 0, 1, 0
        while start < len(pods):
            refused: ApiError | None = None
            for pod in pods[start:start + batch]:
                try:
                    self._store.create("pods", pod())
                    made += 1
                except ApiError as error:
                    if _is_ending(error):
                        continue
                    self._recorder.warn(owner, FAILED_CREATE, f"Error creating: {error.message}")
                    refused = refused or error
            if refused is not None:
                return made, refused
            start, batch = start + batch, batch * 2
        return made, None


def _is_ending(error: ApiError) -> bool:
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.details.get("causes") or ())
