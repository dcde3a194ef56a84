"""Resource paths, and resources by kind."""

from __future__ import annotations

import pytest

from gpuward import errors
from gpuward.kube import resources
from gpuward.kube.resources import CLUSTER_POLICIES, DAEMON_SETS, NODES, PODS


@pytest.mark.parametrize(("path", "expected"), [
    (NODES.path(), "/api/v1/nodes"),
    (NODES.path(name="n1", subresource="status"), "/api/v1/nodes/n1/status"),
    (PODS.path(), "/api/v1/pods"),
    (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
    (PODS.path("ns", "p", "eviction"), "/api/v1/namespaces/ns/pods/p/eviction"),
    (DAEMON_SETS.path("ns", "d"), "/apis/apps/v1/namespaces/ns/daemonsets/d"),
    (CLUSTER_POLICIES.path(name="p"), "/apis/nvidia.com/v1/clusterpolicies/p"),
    (NODES.path(name="a/../b?c"), "/api/v1/nodes/a%2F..%2Fb%3Fc"),
])
def test_paths(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize(("resource", "where", "told"), [
    (NODES, {"namespace": "ns"}, "nodes are not in a namespace"),
    (PODS, {"name": "p"}, "name the namespace of pods p"),
    (DAEMON_SETS, {"namespace": "ns", "subresource": "status"}, "name the object whose status is meant"),
])
def test_a_path_that_would_mean_something_else(resource: resources.GVR, where: dict[str, str], told: str) -> None:
    with pytest.raises(errors.InputError, match=told):
        resource.path(**where)


def test_names_in_words() -> None:
    assert str(PODS) == "pods"
    assert str(DAEMON_SETS) == "daemonsets.apps"
    assert (PODS.api_version, DAEMON_SETS.api_version) == ("v1", "apps/v1")


def test_rendered_objects_find_their_resource() -> None:
    assert resources.KINDS["apps/v1", "DaemonSet"] is DAEMON_SETS
    assert resources.KINDS["nvidia.com/v1", "ClusterPolicy"] is CLUSTER_POLICIES
    for (api_version, _), resource in resources.KINDS.items():
        assert resource.api_version == api_version
