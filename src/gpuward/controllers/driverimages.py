"""Ask registries whether the images of drivers are there, before a node is emptied for one that is not."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import structlog

from gpuward import errors
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.driver import driver_daemonsets
from gpuward.model.driver_images import DriverImages
from gpuward.model.snapshot import Snapshot
from gpuward.ports import Clock, ImageFound, Login, Observer, Registry

IN_TIME: Final = 3.0
"""Seconds for which nodes wait for an answer about an image that is new: it may still come later."""
FOUND_FOR: Final = 6 * 3600.0
MISSING_FOR: Final = 60.0
UNKNOWN_FOR: Final = 600.0
"""Seconds for which each answer counts."""
FIX: Final = ("let the operator reach the registry, and trust its certificate (--trusted-ca, operator.trustedCA in the chart), "
              "or ask none with --check-images=false (operator.checkImages)")
SECRET_KEYS: Final = (".dockerconfigjson", ".dockercfg")


class ImageQuestions:
    """Keep what registries say of the images in use, and put it into the cluster's snapshot."""

    def __init__(self, client: Client, namespace: str, registry: Registry, clock: Clock,
                 take: Callable[[DriverImages], None]) -> None:
        self._client = client
        self._namespace = namespace
        self._registry = registry
        self._clock = clock
        self._take = take
        self._answers: dict[str, tuple[ImageFound, float]] = {}
        """What was answered last, and until when it counts, by image."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._late: set[str] = set()
        self._complaint = ""
        self._wake = asyncio.Event()
        self._log = structlog.get_logger(source="controllers.DriverImages")

    async def run(self, observer: Observer) -> None:
        """Ask about images that are new, and again when an answer has grown old. Ends only by cancellation."""
        try:
            while True:
                wanted = wanted_images(observer.observe())
                self._forget(wanted)
                due = [image for image in wanted if image not in self._asking and self._rest(image) <= 0.0]
                for image in due:
                    self._asking[image] = asyncio.create_task(self._ask(image, wanted[image]))
                self._tell()
                rests = [self._rest(image) for image in wanted if image not in self._asking]
                await self._wait(observer, min(rests, default=None))
        finally:
            for task in self._asking.values():
                task.cancel()

    async def _wait(self, observer: Observer, rest: float | None) -> None:
        """Wait until the cluster changes, an answer comes, or one has grown old."""
        self._wake.clear()
        waits = [asyncio.create_task(observer.changed(rest)), asyncio.create_task(self._wake.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _rest(self, image: str) -> float:
        known = self._answers.get(image)
        if known is None:
            return 0.0
        rest = known[1] - self._clock.now()
        return rest if rest <= FOUND_FOR else 0.0  # the clock was set back

    def _forget(self, wanted: Mapping[str, object]) -> None:
        for image in [image for image in self._answers if image not in wanted]:
            del self._answers[image]
        for image in [image for image in self._asking if image not in wanted]:
            self._asking.pop(image).cancel()
        self._late &= wanted.keys()

    async def _ask(self, image: str, secrets: Iterable[str]) -> None:
        asking = asyncio.create_task(self._answer(image, secrets))
        try:
            done, _ = await asyncio.wait([asking], timeout=IN_TIME)
            if not done:
                self._late.add(image)
                self._wake.set()
            found = await asking
        finally:
            asking.cancel()
        counts = UNKNOWN_FOR if found.there is None else FOUND_FOR if found.there else MISSING_FOR
        before = self._answers.get(image)
        self._answers[image] = found, self._clock.now() + counts
        self._say(image, before[0] if before is not None else None, found)
        self._asking.pop(image, None)
        self._late.discard(image)
        self._wake.set()

    async def _answer(self, image: str, secrets: Iterable[str]) -> ImageFound:
        """Ask with one login after another until one finds the image, as a kubelet tries all: some registries hide what a login
        may not read behind the answer that it is missing. What any login is told counts for more than that another one has no
        answer.
        """
        answers: list[ImageFound] = []
        try:
            for logins in in_turn(await self._logins(secrets)):
                found = await self._registry.find(image, logins)
                if found.there:
                    return found
                answers.append(found)
        except Exception as error:  # whatever it is, it must not stop the operator, and no node waits for it
            return ImageFound(None, type(error).__name__)
        return next((each for each in answers if each.there is False), answers[0])

    async def _logins(self, secrets: Iterable[str]) -> list[tuple[str, Login]]:
        """Return the logins of pull secrets, each with its registry; those that may not be read, or cannot be, have none."""
        found: list[tuple[str, Login]] = []
        for name in secrets:
            try:
                secret = (await self._client.get(resources.SECRETS, name, self._namespace)).object()
            except (errors.ApiError, errors.Unreachable):
                continue
            found += logins_of(secret)
        return found

    def _say(self, image: str, before: ImageFound | None, found: ImageFound) -> None:
        if found.there is None:
            if found.why != self._complaint:
                self._log.warning("It is not known whether a driver's image exists: no node waits", image=image, why=found.why,
                                  fix=FIX)
            self._complaint = found.why
        elif not found.there and (before is None or before.there is not False):
            self._log.warning("A driver's image is missing: nodes keep the driver that they have", image=image, said=found.why)
        elif found.there and before is not None and before.there is False:
            self._log.info("The image of a driver is there now", image=image)

    def _tell(self) -> None:
        missing = {image: found.why for image, (found, _) in self._answers.items() if found.there is False}
        passed = {image for image, (found, _) in self._answers.items() if found.there is not False} | self._late
        unknown = {image: found.why for image, (found, _) in sorted(self._answers.items()) if found.there is None}
        self._take(DriverImages(missing, frozenset(passed - missing.keys()), unknown))


def wanted_images(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the images of the driver DaemonSets, those of all containers, each with the pull secrets of all that have it."""
    found: dict[str, tuple[str, ...]] = {}
    for ds in driver_daemonsets(snapshot):
        for image in () if ds.deleting else ds.images:
            found[image] = tuple(dict.fromkeys((*found.get(image, ()), *ds.pull_secrets)))
    return found


def logins_of(secret: Mapping[str, Any]) -> Iterator[tuple[str, Login]]:
    """Yield what a pull secret has for each registry; garbage has nothing."""
    for key in SECRET_KEYS:
        try:
            told = json.loads(base64.b64decode((secret.get("data") or {}).get(key) or ""))
        except (ValueError, binascii.Error, TypeError):
            continue
        auths = told.get("auths", {}) if isinstance(told, Mapping) and key == SECRET_KEYS[0] else told
        for host, entry in auths.items() if isinstance(auths, Mapping) else ():
            if (login := _login(entry)) is not None:
                yield host.partition("://")[2].partition("/")[0] or host.partition("/")[0], login


def in_turn(logins: Iterable[tuple[str, Login]]) -> list[dict[str, Login]]:
    """Return which logins to ask with, by registry, and which after them: a registry may have several."""
    every: dict[str, list[Login]] = {}
    for registry, login in logins:
        if login not in every.setdefault(registry, []):
            every[registry].append(login)
    turns = max(map(len, every.values()), default=1)
    return [{registry: those[min(turn, len(those) - 1)] for registry, those in every.items()} for turn in range(turns)]


def _login(entry: object) -> Login | None:
    if not isinstance(entry, Mapping):
        return None
    user, password = entry.get("username"), entry.get("password")
    if isinstance(entry.get("auth"), str) and not (user and password):
        try:
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except (ValueError, binascii.Error):
            return None
    return Login(user, password) if isinstance(user, str) and isinstance(password, str) and user else None
