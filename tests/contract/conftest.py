"""One served sandbox per test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.cluster import KUBECTL, Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH")
    served = Cluster(tmp_path_factory.mktemp("kubectl"))
    served.start()
    yield served
    served.stop()
