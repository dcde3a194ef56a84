"""The API servers of the contract: every test that takes `api` runs against both, with the same body."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract import servers
from tests.contract.api import Api, Server
from tests.contract.cluster import KUBECTL, Cluster

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH")
    served = Cluster(tmp_path_factory.mktemp("kubectl"))
    served.start()
    yield served
    served.stop()


@pytest.fixture(scope="session", params=["sandbox", pytest.param("controlplane", marks=pytest.mark.controlplane)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start each API server once for all tests."""
    start = servers.sandbox if request.param == "sandbox" else servers.control_plane
    with ExitStack() as stack:
        yield stack.enter_context(start(tmp_path_factory.mktemp(request.param)))


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    """Hand out an API server with a namespace of the test's own."""
    own = Api(server, f"contract-{next(_NUMBERS)}")
    yield own
    own.clean_up()
