from __future__ import annotations

import pytest

from kubesandbox.sim.demands import demands_of, quantity, requests_of
from kubesandbox.sim.objects import Object


def container(policy: str = "", **resources: dict[str, str]) -> Object:
    made: Object = {"name": "c", "image": "i", "resources": resources}
    return {**made, "restartPolicy": policy} if policy else made


@pytest.mark.parametrize(("text", "value"), [
    ("250m", 0.25), ("2", 2.0), ("1Ki", 1024.0), ("1.5Gi", 1.5 * 2**30), ("3k", 3000.0), ("1e3", 1000.0), ("many", 0.0)])
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize(("spec", "requests"), [
    ({"containers": [container(requests={"cpu": "1"}), container(requests={"cpu": "500m"})]}, {"cpu": 1.5}),
    ({"containers": [container(limits={"example.com/device": "2"})]}, {"example.com/device": 2.0}),
    ({"containers": [container(limits={"cpu": "4"}, requests={"cpu": "1"})]}, {"cpu": 1.0}),
    ({"containers": [container(requests={"cpu": "1"})], "initContainers": [container(requests={"cpu": "3"})]}, {"cpu": 3.0}),
    ({"containers": [container(requests={"cpu": "1"})],
      "initContainers": [container("Always", requests={"cpu": "1"}), container(requests={"cpu": "2"})]}, {"cpu": 3.0}),
    ({"containers": [container(requests={"cpu": "1"})], "overhead": {"cpu": "250m"}}, {"cpu": 1.25}),
])
def test_effective_requests(spec: Object, requests: dict[str, float]) -> None:
    assert requests_of(spec) == pytest.approx(requests)


def test_equal_pods_have_equal_signatures_whatever_their_names() -> None:
    def pod(name: str, cpu: str) -> Object:
        return {"metadata": {"name": name, "namespace": "ml", "labels": {"app": "x"}},
                "spec": {"containers": [container(requests={"cpu": cpu})]}}

    assert demands_of(pod("a", "1")).signature() == demands_of(pod("b", "1")).signature()
    assert demands_of(pod("a", "1")).signature() != demands_of(pod("a", "2")).signature()
