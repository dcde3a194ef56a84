"""What is remembered of the analyses of a rollout: an annotation of its ClusterPolicy or NVIDIADriver.

    gpuward.io/analysis: {"targets":["6f9c7d5b4"],"passed":"2026-01-02T03:04:05.000Z","last":{"a1b2c3d4e5f60718":{
        "result":"Passed","told":"the query ... gave 0","at":"2026-01-02T03:04:05.000Z"}}}

Anybody may edit it. Garbage is as good as nothing: the wave is measured anew, and has not passed meanwhile.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gpuward.model.analysis import LONGEST_TOLD, Analysis, Measured, Result, Verdict
from gpuward.model.reading import MOST, Moment, format_time, read_json, seconds

LONGEST: Final = 131_072
"""Characters of an annotation that are read."""
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Verdict(msgspec.Struct, frozen=True):
    check: str
    at: Moment
    told: str
    failures: Count = 1


class _Measured(msgspec.Struct, frozen=True):
    result: Result
    told: str
    at: Moment
    good: Moment | None = None
    failures: Count = 0


class _Stored(msgspec.Struct, frozen=True):
    targets: tuple[str, ...]
    passed: Moment | None = None
    failed: _Verdict | None = None
    last: dict[str, _Measured] = {}


def encode_analysis(analysis: Analysis) -> str:
    """Return the text of the annotation."""
    stored: dict[str, Any] = {"targets": analysis.targets}
    if analysis.passed:
        stored["passed"] = format_time(analysis.passed)
    if (failed := analysis.failed) is not None:
        stored["failed"] = {"check": failed.check, "at": format_time(failed.at), "told": failed.told, "failures": failed.failures}
    stored["last"] = {key: _measured(one) for key, one in sorted(analysis.last.items())}
    return msgspec.json.encode(stored).decode()


def _measured(one: Measured) -> dict[str, Any]:
    stored: dict[str, Any] = {"result": one.result, "told": one.told, "at": format_time(one.at)}
    return stored | ({"good": format_time(one.good)} if one.good else {}) | ({"failures": one.failures} if one.failures else {})


def read_analysis(text: str) -> Analysis:
    """Return what the annotation says, nothing for garbage."""
    try:
        stored = read_json(text[:LONGEST], _Stored) if text else None
        return _analysis(stored) if stored is not None else Analysis()
    except ValueError:
        return Analysis()


def _analysis(stored: _Stored) -> Analysis:
    failed = stored.failed
    verdict = None if failed is None else Verdict(
        failed.check, seconds(failed.at), failed.told[:LONGEST_TOLD], min(failed.failures, MOST))
    last = {key: Measured(one.result, one.told[:LONGEST_TOLD], seconds(one.at), seconds(one.good) if one.good else 0.0,
                          min(one.failures, MOST)) for key, one in stored.last.items()}
    return Analysis(stored.targets, seconds(stored.passed) if stored.passed else 0.0, verdict, last)
