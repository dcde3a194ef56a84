"""Resource quantities in the canonical form that the API server stores: `0.5` is `500m`, `1024Mi` is `1Gi`.

The rules are those of Kubernetes' `resource.Quantity`: no fraction digits, and the largest suffix that needs none.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

_FORM: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_BINARY: Final = {suffix: 1024 ** power for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_NANO: Final = Decimal(1).scaleb(-9)


def parse(text: str | int | float) -> Decimal:
    """Return the value of a quantity; raise ValueError when it is none. Fractions below 1n are rounded up."""
    number, suffix = _split(str(text))
    if suffix in _BINARY and suffix:
        value: Decimal = number * _BINARY[suffix]
    elif suffix in _DECIMAL:
        value = number.scaleb(_DECIMAL[suffix])
    else:
        value = number.scaleb(int(suffix[1:]))
    if value == value.to_integral_value():
        return value
    return value.quantize(_NANO, rounding=ROUND_CEILING)


@lru_cache(maxsize=4096)
def canonical(text: str | int | float) -> str:
    """Return a quantity as the API server writes it; raise ValueError when it is none."""
    value = parse(text)
    _, suffix = _split(str(text))
    if suffix.endswith("i") and abs(value) >= 1024 and value == value.to_integral_value():
        return _binary(int(value))
    exponent = _exponent(value)
    mantissa = int(value.scaleb(-exponent))
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return str(mantissa) + next(s for s, power in _DECIMAL.items() if power == exponent)


def _split(text: str) -> tuple[Decimal, str]:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return Decimal(match[1]), match[2] or ""


def _binary(value: int) -> str:
    suffix = max((s for s, unit in _BINARY.items() if value % unit == 0), key=lambda s: _BINARY[s])
    return f"{value // _BINARY[suffix]}{suffix}"


def _exponent(value: Decimal) -> int:
    if not value:
        return 0
    nanos = int(value.scaleb(9))
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    return exponent
