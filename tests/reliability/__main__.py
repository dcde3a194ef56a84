"""Play an enumeration in a process of its own, which forks: `python -m tests.reliability cut [--every N] [--first N] ...`.

Prints a Report as JSON.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from tests.reliability.cases import KINDS, Choice, enumerate_cases
from tests.reliability.setups import SETUPS


def main() -> None:
    """Read the options, play, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--mode", choices=tuple(SETUPS), default="clusterpolicy", help="where drivers come from")
    parser.add_argument("--every", type=int, default=1, help="play each N-th case only")
    parser.add_argument("--first", type=int, default=0, help="which of the N")
    parser.add_argument("--lags", default="", help="for stale: how many changes ago, as FROM-TO or a list with commas")
    parser.add_argument("--pictures", type=int, default=99, help="end a case after so many pictures that are right")
    parser.add_argument("--only", default="", help="play this case alone, and tell on stderr what happens in it")
    parser.add_argument("--jobs", type=int, default=2, help="how many cases are played at once")
    options = parser.parse_args()
    choice = Choice(options.every, options.first, _lags(options.lags), options.pictures, options.only, options.mode)
    sys.stdout.buffer.write(msgspec.json.encode(enumerate_cases(options.kind, choice, options.jobs)) + b"\n")


def _lags(text: str) -> tuple[int, ...]:
    if "-" in text:
        first, _, last = text.partition("-")
        return tuple(range(int(first), int(last) + 1))
    return tuple(map(int, text.split(","))) if text else ()


if __name__ == "__main__":
    main()
