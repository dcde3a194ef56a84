"""What goes to a stranger with a bug report: objects and logs without what looks like a credential.

What an environment variable is worth is told by its name alone, so some harmless values go with it. Names stay: they are what
decisions depend on.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

LEFT_OUT: Final = "<left out>"

_CREDENTIAL: Final = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEY", re.IGNORECASE)
"""In the name of an environment variable."""
_KNOWN: Final = re.compile(r"(?:^|[./])(?:nvidia\.com|gpuward\.io|k8s\.io|kubernetes\.io)/")
"""Of annotations whose values are no credentials, whatever their names have in them."""
_COPIES: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration", "objectset.rio.cattle.io/applied"})
"""Annotations that hold the whole object once more, as it was written."""
_VALUES: Final = frozenset({"auth", "identitytoken", "registrytoken", "token", "password", "passwd", "passphrase"})
"""Fields of objects, such as a Docker configuration in an annotation, whose texts are credentials."""
_WORD: Final = (r"(?:token|secret|passw(?:or)?d|passphrase|credential|dockerconfigjson|dockercfg|"
                r"(?:api|access|private|license)[_-]?key)[\w.-]{0,64}")
"""Said before a value in a text; bounded, as whoever writes a log chooses what is matched here."""
_GIVEN: Final = rf"({_WORD}\\?[\"']?[ \t]{{0,8}}[=:][ \t]{{0,8}})"
_OPTION_THEN: Final = rf"((?<![\w.-])--[\w.-]{{0,64}}{_WORD}[ \t]{{1,8}})"
"""An option whose value is written after a blank."""
_BEGIN: Final = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----")
_END: Final = re.compile(r"-----END [A-Z ]{0,32}PRIVATE KEY-----")
_LONGEST_KEY: Final = 16384
_SECRETS: Final = (
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), LEFT_OUT),  # a JSON web token, as service accounts have them
    (re.compile(r"\b(bearer|basic)\s{1,8}[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {LEFT_OUT}"),
    (re.compile(r"(://)[^/\s:@'\"]{0,256}:[^/\s@'\"]{1,1024}@"), rf"\1{LEFT_OUT}@"),
    (re.compile(rf"{_GIVEN}(\\?[\"'])(?:(?!\2).){{0,4096}}\2", re.IGNORECASE), rf"\1\2{LEFT_OUT}\2"),
    (re.compile(rf"{_GIVEN}[^\s\"'\\,;&\[{{<][^\s\"'\\,;&]*", re.IGNORECASE), rf"\1{LEFT_OUT}"),
    (re.compile(r"((\\{0,7}[\"'])auth\2[ \t]{0,8}[=:][ \t]{0,8}\2)(?:(?!\2).){1,4096}", re.IGNORECASE), rf"\1{LEFT_OUT}"),
    (re.compile(rf"{_OPTION_THEN}(\\?[\"'])(?:(?!\2).){{0,4096}}\2", re.IGNORECASE), rf"\1\2{LEFT_OUT}\2"),
    (re.compile(rf"{_OPTION_THEN}[^\s\"'\\,;&\[{{<-][^\s\"'\\,;&]*", re.IGNORECASE), rf"\1{LEFT_OUT}"),
    (re.compile(r"\beyJhdXRoc[\w+/-]{8,}={0,2}"), LEFT_OUT),  # a whole configuration of Docker's, in base64
    (re.compile(r"\b(?:gh[pousr]_\w{20,255}|nvapi-[\w-]{20,255}|AKIA[0-9A-Z]{16})\b"), LEFT_OUT),  # of GitHub, NGC and AWS
)


_AUTH: Final = re.compile(r"((?<![\w.-])auth[ \t]{0,8}[=:][ \t]{0,8})([\w+/]{4,4096}={0,2})", re.IGNORECASE)


def scrubbed(text: str) -> str:
    """Return a text, such as a log or a message, without what is written in it as a credential."""
    before, *keys = _BEGIN.split(text)
    text = "".join([before, *(LEFT_OUT + _after_key(part) for part in keys)])
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return _AUTH.sub(_auth, text)


def _auth(found: re.Match[str]) -> str:
    """Return what is written of `auth` without quotes; without what is a user and a password in base64, as Docker has it."""
    try:
        is_user = b":" in base64.b64decode(found[2], validate=True)
    except ValueError:
        is_user = False
    return found[1] + LEFT_OUT if is_user else found[0]


def _after_key(text: str) -> str:
    """Return what follows a private key; one whose end is missing, as in a log that was cut, has a length at most."""
    end = _END.search(text)
    return text[end.end() if end is not None else _LONGEST_KEY:]


def redacted(value: Any) -> Any:
    """Return an object without the values of variables that are named like credentials, and with all its texts scrubbed."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, list):
        return _arguments([redacted(each) for each in value])
    if not isinstance(value, Mapping):
        return value
    if _is_variable(value):
        return {**value, "value": LEFT_OUT if _CREDENTIAL.search(str(value["name"])) else redacted(value["value"])}
    return {key: _field(str(key), each) for key, each in value.items() if key != "managedFields"}


def _is_variable(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("value"), str) and isinstance(value.get("name"), str)


def _field(key: str, value: Any) -> Any:
    if key in _COPIES:
        return LEFT_OUT
    if key.lower() in _VALUES and isinstance(value, str) and value:
        return LEFT_OUT
    if key == "annotations" and isinstance(value, Mapping):
        return {name: _annotation(name, text) for name, text in value.items()}
    return redacted(value)


def _annotation(name: str, text: Any) -> Any:
    """Return an annotation; one that holds JSON, as ours do, without what is left out of objects."""
    told = name in _COPIES or (_CREDENTIAL.search(name) and not _KNOWN.search(name))
    if told or not isinstance(text, str):
        return LEFT_OUT
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict | list):
        return scrubbed(text)
    kept = redacted(data)
    return text if kept == data else json.dumps(kept)


def _arguments(texts: list[Any]) -> list[Any]:
    """Return a list without the value that follows an option named like a credential."""
    after = (False, *(isinstance(each, str) and bool(_OPTION.fullmatch(each)) for each in texts))
    return [LEFT_OUT if follows and isinstance(each, str) else each for each, follows in zip(texts, after, strict=False)]


_OPTION: Final = re.compile(rf"--?[\w.-]{{0,64}}{_WORD}", re.IGNORECASE)
