"""Types of option values, and `-o jsonpath=...`: single values of what `-o json` prints, as kubectl's templates select them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpuward.errors import InputError

PREFIX = "jsonpath="
FORMS = ("table", "wide", "name", "json")
MOST_OF_LABEL = 63
VERSION_WANTED = "write a driver version, such as 595.91.08"
NAMESPACE_FORM = "write up to 63 lower case letters, digits and -, with a letter or digit at both ends, such as gpu-operator"


class OutputForm(click.ParamType[str]):
    """Take `table`, `wide`, `name`, `json` or `jsonpath=PATH`."""

    name = "form"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return what help shows."""
        return "|".join((*FORMS, f"{PREFIX}PATH"))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the forms that begin so."""
        return [CompletionItem(form) for form in FORMS if form.startswith(incomplete)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the form. Fails with a usage error."""
        text = str(value)
        if text not in FORMS and not text.startswith(PREFIX):
            self.fail(f"{text!r} is none of {', '.join(FORMS)}, {PREFIX}PATH", param, ctx)
        if text.startswith(PREFIX):
            try:
                _path(text)
            except InputError as error:
                self.fail(str(error), param, ctx)
        return text


class GoBool(click.types.BoolParamType):
    """Take a boolean in the words that Go's flags know, and some more."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Return the boolean. Fails with a usage error."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r}: write true or false", param, ctx)


def refused(error: InputError) -> str:
    """Return why a value cannot be used, without the option: click names that before."""
    return f"{error.value!r}: {error.fix}"


class Duration(click.ParamType[float]):
    """Take a duration as Go writes it, such as `1h30m`; return seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds. Fails with a usage error."""
        from gpuward.crd.durations import parse_duration  # here, as help and the version do without it

        if isinstance(value, float):
            return value
        try:
            return parse_duration(param.opts[-1] if param is not None else "duration", str(value))
        except InputError as error:
            self.fail(refused(error), param, ctx)


class NameOf(click.ParamType[str]):
    """Take one of some names, in whatever case; of another one say which it may be meant as."""

    def __init__(self, what: str, known: Iterable[str]) -> None:
        self.name = what
        self.known = [str(each) for each in known]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin so."""
        return [CompletionItem(each) for each in self.known if each.lower().startswith(incomplete.lower())]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is written. Fails with a usage error."""
        from difflib import get_close_matches  # only where somebody has mistyped

        lower = {each.lower(): each for each in self.known}
        found = lower.get(str(value).lower())
        if found is None:
            near = [lower[each] for each in get_close_matches(str(value).lower(), lower, n=3, cutoff=0.7)]
            hint = f"did you mean {' or '.join(near)}?" if near else f"`gpuward {ctx.info_name}` lists all" if ctx else ""
            self.fail(f"{str(value)!r} is no {self.name}: {hint}", param, ctx)
        return found


class Namespace(click.ParamType[str]):
    """Take the name of a namespace, or where `optional` nothing."""

    name = "namespace"

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name. Fails with a usage error."""
        text = str(value)
        if not is_namespace(text) and not (self.optional and not text):
            self.fail(f"{text!r} is no namespace: {NAMESPACE_FORM}", param, ctx)
        return text


def is_namespace(text: str) -> bool:
    """Tell whether a text may be the name of a namespace: a DNS label."""
    return len(text) <= MOST_OF_LABEL and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text) is not None


def values_at(form: str, document: Any) -> str:
    """Return the values at a path such as `{.nodes[*].name}`, separated by blanks as kubectl does."""
    return " ".join(value if isinstance(value, str) else json.dumps(value) for value in _path(form).findall(document))


def _path(form: str) -> Any:
    import jsonpath  # here, as few calls need it

    text = form.removeprefix(PREFIX).strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    path = text if text.startswith("$") else "$" + (text if text.startswith((".", "[")) else f".{text}")
    try:
        return jsonpath.compile(path)
    except jsonpath.JSONPathError as error:
        why = str(error).partition("\n")[0]
        raise InputError("-o", form, f"write a path such as {PREFIX}'{{.nodes[*].name}}' ({why})") from None
