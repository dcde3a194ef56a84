"""Whose a node with containers is that only an NVIDIADriver for hosts selects."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.driver_types import selected_for_hosts
from gpuward.model.owners import FOR_HOSTS, Claim
from gpuward.model.placement import Placement, Placements, Placing, wanted_placement
from gpuward.model.views import NodeView
from gpuward.model.workloads import FOR_CONTAINERS, FOR_VGPU, Workload, Workloads
from tests.model.test_placement import IN_A, cluster, driver_pod, free, moving

A = Claim("a", {"pool": "a"}, driver_type="gpu")
HOSTS = Claim("h", {"pool": "h"}, driver_type=FOR_HOSTS)
BOTH = Placing((A, HOSTS))
LABELS = {**IN_A, "pool": "h", **dict.fromkeys(FOR_CONTAINERS, "true")}
LEAVING = Placing((HOSTS,), departing=frozenset({"a"}))


def test_whose_driver_it_has_keeps_it() -> None:
    assert wanted_placement("n0", LABELS, BOTH) == Placement("a", "rhel9")
    assert wanted_placement("n0", LABELS, Placing((HOSTS,))).owner == "h", "nobody has it"
    assert wanted_placement("n0", {**LABELS, names.DRIVER_OWNER: ""}, BOTH).owner == "h"


def test_a_host_is_given_to_the_one_for_hosts() -> None:
    host = {key: value for key, value in LABELS.items() if key not in FOR_CONTAINERS} | dict.fromkeys(FOR_VGPU, "true")
    assert wanted_placement("n0", host, BOTH).owner == "h"


def test_its_driver_goes_with_its_nvidiadriver() -> None:
    node = NodeView("n0", labels=LABELS)
    assert moving(node, cluster(node, driver_pod()), LEAVING) == Placement("", "rhel9")


def test_a_driver_that_is_about_to_go_is_not_called_back() -> None:
    node = NodeView("n0", labels={key: value for key, value in LABELS.items() if key != names.DRIVER_OWNER})
    assert free(node, cluster(node, driver_pod()), LEAVING) == {}
    assert free(node, cluster(node), LEAVING) == {names.DRIVER_OWNER: "h"}


@pytest.mark.parametrize(("workloads", "config", "name"), [
    (None, "", "h"), (Workloads(), "vm-vgpu", "h"), (Workloads(enabled=True), "", "h"), (Workloads(enabled=True), "vm-vgpu", ""),
    (Workloads(enabled=True, default=Workload.VM_VGPU), "", "")])
def test_one_that_is_to_be_a_host_is_selected_rightly(workloads: Workloads | None, config: str, name: str) -> None:
    found = selected_for_hosts("n0", {**LABELS, names.WORKLOAD_CONFIG: config}, BOTH.claims or (), workloads)
    assert ("" if found is None else found.name) == name


def test_two_that_select_it_are_in_conflict_whatever_their_types() -> None:
    claims = (msgspec.structs.replace(A, selector={}), HOSTS)
    assert selected_for_hosts("n0", LABELS, claims, None) is None
    assert not Placements(cluster(node := NodeView("n0", labels=LABELS)), Placing(claims)).is_elsewhere(node, ())
