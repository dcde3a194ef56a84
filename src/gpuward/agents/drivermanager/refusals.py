"""Evictions that were refused: with what words, when each pod is asked again, and whether asking is of any use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpuward import errors
from gpuward.agents.api import STARTING_SECONDS, asked_pause
from gpuward.agents.telling import within_bytes
from gpuward.model.views import Ref
from gpuward.upgrade.forbidden import lacks_right

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 10.0
"""Seconds until a pod whose eviction was refused is asked again, at most; each pause takes twice as long as the one before."""
LONGEST_REFUSAL: Final = 300
"""Bytes of the words with which an eviction is refused. Webhooks write them."""


@dataclass
class Refusals:
    """Remember what was refused."""

    told: dict[Ref, str] = field(default_factory=dict)
    _again: dict[Ref, tuple[float, float]] = field(default_factory=dict)
    """When a pod is asked again, and how long the pause after that is."""
    _lacking: float | None = None
    """Since when the right to evict was lacking each time."""

    def is_due(self, pod: Ref, now: float) -> bool:
        """Tell whether a pod may be asked to go now."""
        return pod not in self._again or now >= self._again[pod][0]

    def granted(self, pod: Ref) -> None:
        """Take it that a pod goes."""
        self.told.pop(pod, None)
        self._lacking = None

    def refused(self, pod: Ref, error: errors.GpuwardError, now: float) -> bool:
        """Take it that a pod may not go; return whether none ever will, for want of the right. A server that has just started
        refuses for a moment what it allows.
        """
        self._lacking = (self._lacking if self._lacking is not None else now) if lacks_right(str(error)) else None
        pause = self._again.get(pod, (0.0, FIRST_PAUSE))[1]
        self.told[pod] = within_bytes(str(error), LONGEST_REFUSAL)
        self._again[pod] = now + max(pause, asked_pause(error)), min(2 * pause, LONGEST_PAUSE)
        return self._lacking is not None and now - self._lacking >= STARTING_SECONDS
