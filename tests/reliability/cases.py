"""The three enumerations: where the rollout branches, what a branch does to the operator, and how it is judged."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import structlog

from kubesandbox.timeloop import run_virtual
from tests.reliability.branches import Branches, Result, last_words
from tests.reliability.past import Followed, OldCache
from tests.reliability.picture import Picture, differences
from tests.reliability.scene import Scene
from tests.reliability.unseen import PATIENCE_SECONDS, Line, Watched, Watching

IN_FLIGHT_SECONDS = 1.0
"""Events are written after the change that they tell of: those of so many seconds are lost with the process."""


RETRACTED = ("/record/target is", "/record/returns is")
"""What a node rightly remembers of a step taken back: which driver it was sent to, and that the last look sent it back."""


class Oracle(msgspec.Struct, frozen=True):
    """Hold what the undisturbed run was like."""

    pictures: tuple[Picture, ...]
    told: tuple[tuple[float, str], ...]

    def in_flight(self, since: float) -> set[str]:
        """Return the events that were told right after a moment."""
        return {text for at, text in self.told if since <= at <= since + IN_FLIGHT_SECONDS}


class Choice(msgspec.Struct, frozen=True):
    """Say which of the cases are played: each `every`-th, beginning with `first`."""

    every: int = 1
    first: int = 0
    lags: tuple[int, ...] = ()
    """How many changes ago an old cache stands still."""
    pictures: int = 99
    """After how many pictures that are as they should be a case ends early."""
    only: str = ""
    """The one case to play, by its name; its writes and log lines are told on stderr."""
    mode: str = "clusterpolicy"
    """Where drivers come from, by its name in `setups`."""

    def includes(self, number: int, case: str) -> bool:
        """Tell whether a case is played."""
        return case == self.only if self.only else number % self.every == self.first % self.every


class Enumeration(ABC):
    """Branch one run of the rollout at all its moments of a kind. Subclasses say which, and what happens then."""

    outdated = False
    """Whether a process is shown what is no longer so. Then it may ask for an eviction that was asked for already, and begin what
    it takes back when it sees better; see RETRACTED."""

    def __init__(self, choice: Choice, oracle: Oracle, branches: Branches) -> None:
        self.choice = choice
        self.oracle = oracle
        self.branches = branches
        self.scene = Scene(choice.mode)
        self.cases = 0
        self.began = 0.0
        """When this case was disturbed."""
        self.notes: Counter[str] = Counter()
        self.edited = False
        """Whether the policy that this process is shown was replaced meanwhile. For a while it does what that asks for; at last
        all must be as in the undisturbed run, but for the pods that were evicted."""
        self._differs: list[str] = []
        self._right = 0
        self._wrong: list[str] = []

    @abstractmethod
    def begin(self) -> None:
        """Begin to branch: the rollout starts now."""

    def begins(self, case: str) -> bool:
        """Tell whether this process is the child that plays a case."""
        if self.branches.case:
            return False
        self.cases += 1
        if not self.choice.includes(self.cases, case) or not self.branches.begin(case):
            return False
        if self.choice.only:
            self.scene.tell()
        self.began = self.scene.clock.now()
        return True

    async def play(self) -> None:
        """Play the rollout; a child ends with it."""
        scene = self.scene
        try:
            await scene.start()
            await scene.prepare()
            scene.developed = self._look
            self.begin()
            await scene.play()
        except Exception:
            if not self.branches.case:
                raise
            self._wrong.append(last_words())
        if self.branches.case:
            self._end()
        await scene.stop()

    def _look(self) -> None:
        """Compare the newest picture, and end the case if enough of them are right."""
        if not self.branches.case:
            return
        number = len(self.scene.pictures) - 1
        lost = self.oracle.in_flight(self.began)
        later = self.oracle.pictures[-1]["events"] if self.outdated else ()
        found = differences(self.scene.pictures[number], self.oracle.pictures[number], lost, later)
        wrong = [text for text in found if not (self.outdated and any(field in text for field in RETRACTED))]
        if self.edited:
            self._differs = [text for text in wrong if "/evicted/" not in text]
            self.notes["differs after an edit"] += bool(wrong)
        else:
            self._wrong += wrong
        self._right += not (self._differs or self._wrong)
        told = self.scene.pictures[number]["events"]
        self.notes["events lost"] = max(self.notes["events lost"], len(set(self.oracle.pictures[number]["events"]) - set(told)))
        if self._wrong or self._right >= self.choice.pictures:
            self._end()

    def _end(self) -> None:
        self.notes["evictions asked for again"] = self.scene.asked_again
        if self.scene.asked_again and not self.outdated:
            self._wrong.append(f"{self.scene.asked_again} evictions were asked for again")
        self.branches.end([*self._wrong, *self._differs, *self.scene.verdict()], dict(self.notes))


class Cut(Enumeration):
    """Kill the operator before and after each of its writes."""

    def begin(self) -> None:
        """Begin to branch."""
        self.scene.hook = self._at

    def _at(self, moment: str) -> None:
        if self.begins(f"cut {moment}"):
            self.scene.kill()


class Stale(Enumeration):
    """Kill the operator after each of its writes; the next one first sees the cluster as it was some changes ago."""

    outdated = True

    def begin(self) -> None:
        """Begin to branch."""
        self.followed = Followed(self.scene)
        self._before = (0, 0.0)
        self.scene.hook = self._at

    def _at(self, moment: str) -> None:
        versions, now = len(self.followed.versions), self.scene.clock.now()
        if moment.startswith("before") or self._before == (versions, now):
            return  # nothing has happened that the new process could see, or could not see
        self._before = (versions, now)
        for lag in self.choice.lags:
            if lag > versions:
                return
            version = self.followed.ago(lag)
            edited = self.followed.edited_since(version)
            if self.begins(f"stale {moment}, {lag} changes ago" + (", before an edit" if edited else "")):
                self.edited = edited
                self.scene.kill()
                self.scene.reads = OldCache(self.scene, version)
                return


class Unseen(Enumeration):
    """Withhold each watch event from the operator, once."""

    def __init__(self, choice: Choice, oracle: Oracle, branches: Branches) -> None:
        super().__init__(choice, oracle, branches)
        self._begun = False
        self._watched: Watched | None = None
        self.scene.reads = Watching(self._withhold)

    def begin(self) -> None:
        """Begin to branch."""
        self._begun = True

    def _withhold(self, event: Line, watched: Watched) -> bool:
        if not self._begun or event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return False
        meta = event["object"]["metadata"]
        case = f"unseen {event['type']} {event['object']['kind']} {meta['name']} {meta['resourceVersion']}"
        if not self.begins(case):
            return False
        self._watched = watched
        self.scene.disturb(PATIENCE_SECONDS)
        return True

    def _end(self) -> None:
        if self._watched is not None:
            self.notes["followed by another event"] = int(self._watched.followed)
            self.notes["found by a new list"] = int(self._watched.expired)
        super()._end()


KINDS: dict[str, type[Enumeration]] = {"cut": Cut, "stale": Stale, "unseen": Unseen}


class Report(msgspec.Struct, frozen=True):
    """Hold what came of an enumeration: how many cases there are, and how those ended that were played."""

    cases: int
    results: tuple[Result, ...]


def undisturbed(mode: str) -> Oracle:
    """Play the rollout undisturbed."""
    told: list[tuple[float, str]] = []
    pictures: list[Picture] = []

    async def main() -> None:
        scene = Scene(mode)
        await scene.start()
        await scene.prepare()
        await scene.play()
        await scene.stop()
        if broken := scene.verdict():
            raise AssertionError(f"the undisturbed rollout breaks rules: {broken}")
        told.extend(scene.told)
        pictures.extend(scene.pictures)

    _run(main)
    return Oracle(tuple(pictures), tuple(told))


def enumerate_cases(kind: str, choice: Choice, jobs: int = 2) -> Report:
    """Play an enumeration and return how its cases ended.

    Raises:
        AssertionError: two undisturbed runs differ.
    """
    oracle = undisturbed(choice.mode)
    with tempfile.TemporaryDirectory() as folder:
        branches = Branches(Path(folder), jobs)
        cases = 0

        async def main() -> None:
            nonlocal cases
            enumeration = KINDS[kind](choice, oracle, branches)
            await enumeration.play()
            cases = enumeration.cases
            if enumeration.scene.pictures != list(oracle.pictures):
                raise AssertionError("two undisturbed runs differ")

        _run(main)
        return Report(cases, tuple(branches.results()))


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        run_virtual(main)
    finally:
        structlog.reset_defaults()
