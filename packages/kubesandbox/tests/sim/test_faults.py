from __future__ import annotations

import pytest

from kubesandbox.errors import InputError
from kubesandbox.sim.faults import Fault, Faults


@pytest.mark.parametrize(("pattern", "hit"), [("*", {"a", "b"}), ("a", {"a"}), ("!a", {"b"}), ("!*", set())])
def test_a_fault_is_of_pods_of_some_namespaces_or_of_all_others(pattern: str, hit: set[str]) -> None:
    faults = Faults()
    faults.add(Fault("kind", namespace=pattern))
    assert {name for name in ("a", "b") if faults.hits("kind", "node", "pod", "image", name)} == hit


def test_an_empty_pattern_is_refused() -> None:
    with pytest.raises(InputError, match="namespace"):
        Fault("kind", namespace="")
