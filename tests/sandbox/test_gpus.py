from __future__ import annotations

import pytest

from gpuward.sandbox.gpus import gpus_wanted


@pytest.mark.parametrize(("resource", "gpus"), [
    ("nvidia.com/gpu", 2), ("nvidia.com/gpu.shared", 2), ("nvidia.com/mig-1g.5gb", 2), ("amd.com/gpu", 0), ("cpu", 0)])
def test_what_counts_as_gpus(resource: str, gpus: int) -> None:
    assert gpus_wanted({"containers": [{"name": "c", "image": "i", "resources": {"limits": {resource: "2"}}}]}) == gpus
