"""What the decision about the operands makes of the nodes."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.operands.decide import awaits_labels

SEEN = {names.NFD_GPU_LABELS[0]: "true"}
LABELLED = {**SEEN, names.GPU_PRESENT: "true"}


@pytest.mark.parametrize(("nodes", "waits"), [
    ([], False),
    ([{}], False),
    ([SEEN], True),
    ([{}, SEEN], True),
    ([LABELLED], False),
    ([LABELLED, SEEN], False),
])
def test_a_verdict_waits_for_the_first_label(nodes: list[dict[str, str]], waits: bool) -> None:
    found = {f"n{number}": NodeView(f"n{number}", labels=labels) for number, labels in enumerate(nodes)}
    assert awaits_labels(Snapshot("gpu-operator", found)) is waits
