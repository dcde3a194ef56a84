"""Flags of NVIDIA's programs, each of which reads an environment variable too."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from gpuward.errors import InputError

TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""What Go reads as booleans."""
UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
DURATION_PART: Final = r"(\d+\.?\d*|\.\d+)(h|ms|m|s|us|µs|μs|ns)"
LONGEST_DURATION: Final = 2**63 / 1e9
"""Seconds that Go can count."""
NODE_NAME: Final = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"


LONGEST_SAID: Final = 100
"""Characters of a wrong value that are repeated."""


class Flag(NamedTuple):
    """Describe a flag."""

    variable: str
    default: str
    help: str
    short: str = ""
    """Another name, mostly of one letter."""
    switch: bool = False
    """As in Go, it is on where it is given alone, and takes another value by = only."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError("arguments", message, "see --help")


@dataclass(frozen=True, slots=True)
class Flags:
    """Hold what was said, by flag or by variable; the flag counts first."""

    said: Mapping[str, str | None]
    known: Mapping[str, Flag]
    environ: Mapping[str, str]
    words: tuple[str, ...]
    """Arguments that are no flags."""

    def text(self, name: str) -> str:
        """Return a flag's value."""
        return self.named(name)[1]

    def named(self, name: str) -> tuple[str, str]:
        """Return a flag's value after the name under which it was said."""
        said, flag = self.said[name], self.known[name]
        where, value = (f"--{name}", said) if said is not None else (
            flag.variable, self.environ.get(flag.variable) or flag.default)
        return where, checked_text(where, value)

    def node(self, name: str) -> str:
        """Return the name of a node, or nothing. Raises errors.InputError for what can be none."""
        where, value = self.named(name)
        if value and re.fullmatch(NODE_NAME, value, re.ASCII) is None:
            raise InputError(where, value, "write the name of a node, of lower-case letters, digits, '-' and '.'")
        return value

    def duration(self, name: str) -> float:
        """Return the seconds of a duration, as Go reads it. Raises errors.InputError for what is none."""
        where, value = self.named(name)
        parts = re.findall(DURATION_PART, value, re.ASCII) if re.fullmatch(f"(?:{DURATION_PART})+", value, re.ASCII) else []
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
        if seconds >= LONGEST_DURATION or not (parts or value == "0"):
            raise InputError(where, value, "write a duration such as 30s, 10m or 1h30m")
        return seconds

    def switch(self, name: str) -> bool:
        """Return whether a flag is on. Raises errors.InputError for what is no boolean."""
        where, value = self.named(name)
        if self.said[name] is None and self.environ.get(self.known[name].variable) == "":
            return False  # as with NVIDIA's: a variable that is there and empty is no default
        if value not in TRUE | FALSE:
            raise InputError(where, value, "write true or false")
        return value in TRUE

    def number(self, name: str, *, least: int = 0, most: int = 2**31) -> int:
        """Return a whole number. Raises errors.InputError for what is none within bounds."""
        where, value = self.named(name)
        digits = (value.lstrip("0") or "0") if value else ""
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 12 and least <= int(digits) <= most):
            raise InputError(where, _short(value), f"write a whole number from {least} to {most}")
        return int(digits)


class _Version(argparse.Action):
    """Print the version, which is looked up only where it is asked for: that takes longer than all the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"{parser.prog} version {version('gpuward')}\n")
        parser.exit()


def read_flags(program: str, description: str, known: Mapping[str, Flag], arguments: Sequence[str], environ: Mapping[str, str],
               epilog: str = "") -> Flags:
    """Read the command line. `--help` and `--version` print and end the program.

    Raises:
        InputError: there is no such flag, or one has no value.
    """
    parser = _Parser(prog=program, allow_abbrev=False, description=description, epilog=epilog,
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, flag in known.items():
        names = [*([f"-{flag.short}"] if flag.short else []), f"--{name}"]
        parser.add_argument(*names, dest=name, metavar=flag.variable, help=flag.help)
    parser.add_argument("-v", "--version", action=_Version, nargs=0, help="print the version and exit")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    switches = {f"--{name}" for name, flag in known.items() if flag.switch} | {
        f"-{flag.short}" for flag in known.values() if flag.switch and flag.short}
    said = _as_they_are_named(arguments, known)
    given = vars(parser.parse_intermixed_args([_with_value(each) if each in switches else each for each in said]))
    return Flags({name: given[name] for name in known}, known, environ, tuple(given["words"]))


def _as_they_are_named(arguments: Sequence[str], known: Mapping[str, Flag]) -> list[str]:
    """Return the arguments with two dashes before whole names, and with these in place of others of several letters.

    Go makes no difference between one dash and two.
    """
    named = {flag.short: name for name, flag in known.items() if len(flag.short) > 1} | {
        name: name for name in (*known, "help", "version")}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    found = [(each, re.fullmatch(r"--?([a-z][a-z-]+)((?:=.*)?)", each, re.DOTALL)) for each in arguments[:end]]
    return [*(f"--{named[match[1]]}{match[2]}" if match is not None and match[1] in named else each for each, match in found),
            *arguments[end:]]


def checked_text(where: str, value: str) -> str:
    """Return a value. Raises errors.InputError for bytes that are no text, which the system passes on as they are."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(where, _short(value), "write it as UTF-8") from None
    return value


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_SAID else f"{value[:LONGEST_SAID]}..."


def _with_value(switch: str) -> str:
    return f"{switch}=true" if switch.startswith("--") else f"{switch}true"
