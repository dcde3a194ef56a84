from __future__ import annotations

import pytest

from kubesandbox import quantities


@pytest.mark.parametrize(("given", "stored"), [
    ("0.5", "500m"), ("1000m", "1"), ("1024Mi", "1Gi"), ("1000Mi", "1000Mi"), ("1.5Gi", "1536Mi"), ("100000", "100k"),
    ("1e3", "1e3"), ("0.1Gi", "107374182400m"), ("0", "0"), ("0.5Mi", "512Ki"), ("+5", "5"), ("512", "512"), (2, "2"),
    ("1023Ki", "1023Ki"), ("0.5Ki", "512"), ("-1500m", "-1500m"),
])
def test_canonical(given: str | int, stored: str) -> None:
    assert quantities.canonical(given) == stored
    assert quantities.canonical(stored) == stored


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "5 Gi", "1Zi", "--1"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        quantities.canonical(text)
