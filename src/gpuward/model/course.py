"""What is noted of a node's upgrade while it is under way, as part of its record: of it the history is made at the end."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gpuward.model.reading import MOST, Moment, format_time, seconds

MOST_SECONDS: Final = 1e9
"""The longest time that is read, in seconds; also of GPU-seconds."""
MOST_TEXT: Final = 64
"""Characters of a version or of a field manager's name that are kept."""
Seconds = tuple[float, float, float, float]
"""How long a node waited for jobs, was emptied, got its driver, and was validated."""
NO_TIME: Final[Seconds] = (0.0, 0.0, 0.0, 0.0)


class Course(msgspec.Struct, frozen=True, gc=False):
    """Hold how an upgrade has gone so far. Times are seconds since the epoch, durations seconds."""

    began: float = 0.0
    """When the node was admitted; 0 for one that failed, and is only kept out of service."""
    out: float = 0.0
    """Since when our cordon keeps the node out of service; 0 while none does."""
    was_out: float = 0.0
    """Seconds for which it did so before, as where somebody lifted it."""
    before: str = ""
    """The version of the driver that it had."""
    to: str = ""
    """The version of the driver that it gets."""
    digest: str = ""
    """The beginning of that driver's configuration digest."""
    asked: str = ""
    """The field manager that asked for it, where managedFields tell."""
    spent: Seconds = NO_TIME
    gpus: int = 0
    """GPUs of the node; 0 where discovery has not counted them."""
    evicted: int = 0
    lost: float = 0.0
    """GPU-seconds that evicted pods had run for, which do not go on elsewhere."""
    back: str = ""
    """The version of the driver that it was to get before it was sent back to that which it had."""

    def sent_to(self, version: str) -> Course:
        """Return it for a node that is to get a driver of this version, which may be the one that it had; empty if not known."""
        if not version or version == self.to:
            return self
        back = self.to or self.back if version == self.before else ""
        return msgspec.structs.replace(self, to=version, back=back)

    def out_until(self, now: float) -> float:
        """Return for how long our cordon has kept the node out of service, in seconds."""
        return min(self.was_out + (max(0.0, now - self.out) if self.out else 0.0), MOST_SECONDS)

    def cordoned(self, now: float) -> Course:
        """Return it for a node that our cordon keeps out of service from now on, if it did not before."""
        return self if self.out else msgspec.structs.replace(self, out=now)

    def uncordoned(self, now: float) -> Course:
        """Return it for a node from which our cordon has gone."""
        return msgspec.structs.replace(self, out=0.0, was_out=self.out_until(now)) if self.out else self

    def not_ahead(self, now: float) -> Course:
        """Return it with times that are past."""
        return msgspec.structs.replace(self, began=min(self.began, now), out=min(self.out, now))


class StoredCourse(msgspec.Struct, frozen=True, gc=False):
    """Read what a record says of the course of an upgrade."""

    began: Moment | None = None
    out: Moment | None = None
    was_out: float = msgspec.field(default=0.0, name="wasOut")
    before: str = msgspec.field(default="", name="from")
    to: str = ""
    digest: str = ""
    asked: str = ""
    spent: Seconds = NO_TIME
    gpus: int = 0
    evicted: int = 0
    lost: float = 0.0
    back: str = ""


def stored_course(course: Course) -> dict[str, Any]:
    """Return a course as a record holds it: what is nothing is left out."""
    times = {key: format_time(at) for key, at in (("began", course.began), ("out", course.out)) if at}
    spent = {"spent": [round(each, 3) for each in course.spent]} if any(course.spent) else {}
    rest = {"from": course.before, "to": course.to, "digest": course.digest, "asked": course.asked, "gpus": course.gpus,
            "evicted": course.evicted, "lost": round(course.lost), "back": course.back,
            "wasOut": round(course.was_out, 3)}
    return times | spent | {key: value for key, value in rest.items() if value}


def course_of(stored: StoredCourse) -> Course:
    """Return a course as it was read, brought to what can be reckoned with."""
    began, out = (seconds(moment) if moment else 0.0 for moment in (stored.began, stored.out))
    jobs, emptied, driver, validated = map(bounded, stored.spent)
    texts = (stored.before, stored.to, stored.digest, stored.asked, stored.back)
    before, to, digest, asked, back = (text[:MOST_TEXT] for text in texts)
    return Course(
        began, out, bounded(stored.was_out), before, to, digest, asked, (jobs, emptied, driver, validated),
        counted(stored.gpus), counted(stored.evicted), bounded(stored.lost), back)


def bounded(value: float) -> float:
    """Return a duration that can be reckoned with."""
    return min(max(value, 0.0), MOST_SECONDS)


def counted(value: int) -> int:
    """Return a count that can be reckoned with."""
    return min(max(value, 0), MOST)
