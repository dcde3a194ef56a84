"""The syntax of labels and of label selectors as text, by the rules of Kubernetes' apimachinery."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_KEY: Final = rf"(?:{_PREFIX}/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_LIST: Final = rf"\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\)"
_REQUIREMENT: Final = rf"(?:!\s*{_KEY}|{_KEY}(?:\s*(?:==|=|!=)\s*{_VALUE}|\s*[<>]\s*-?[0-9]+|\s+(?:in|notin)\s*{_LIST})?)"

_LABEL_KEY: Final = re.compile(_KEY)
_LABEL_VALUE: Final = re.compile(_VALUE)
_SELECTOR: Final = re.compile(rf"\s*(?:{_REQUIREMENT}\s*(?:,\s*{_REQUIREMENT}\s*)*)?")


def is_label_key(text: str) -> bool:
    """Tell whether a text can be the key of a label or an annotation: a name of up to 63 characters, maybe prefixed."""
    return _LABEL_KEY.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Tell whether a text can be the value of a label."""
    return _LABEL_VALUE.fullmatch(text) is not None


def is_selector(text: str) -> bool:
    """Tell whether a text is a label selector such as `app=train,tier in (a,b),!keep`; an empty one selects all."""
    return _SELECTOR.fullmatch(text) is not None
