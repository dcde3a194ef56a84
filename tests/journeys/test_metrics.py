"""What the metrics tell of a fleet, of the API server's answers and of the operator itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from gpuward.controllers.metricnames import COUNTED, FLEET, OWN, OWN_FLEET, PREFIX, full_name
from gpuward.errors import Forbidden
from gpuward.report.groups import Group
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import refusal
from kubesandbox.sim.faults import Fault
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply


class Scrape:
    """Hold what one scrape read."""

    def __init__(self, stage: Stage) -> None:
        self.at = stage.clock.now()
        self.text = stage.operator.metrics.text().decode()
        self._samples = [sample for family in text_string_to_metric_families(self.text) for sample in family.samples]

    def of(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have a name and labels."""
        found = [sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()]
        assert found, (name, labels)
        return sum(found)

    def by(self, name: str, label: str) -> Mapping[str, float]:
        """Return the samples of a name that are not 0, by a label."""
        return {sample.labels[label]: sample.value for sample in self._samples if sample.name == name and sample.value}


@on_stage(gpu_nodes=4, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 1})
async def test_nodes_are_counted_by_state_and_group_and_those_that_wait_by_how_long(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("guarded", node="gpu-1", max_unavailable=0)
    await stage.deploy("free", node="gpu-2")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: Scrape(stage).by("gpuward_nodes_by_group", "group").get("under way"))
    seen = Scrape(stage)
    assert seen.by("gpuward_nodes_by_group", "group") == {"held": 1, "under way": 1, "waiting": 2}
    await stage.until(lambda: list(stage.states().values()).count("upgrade-done") == 3)
    await stage.rest(3600)
    seen = Scrape(stage)
    assert seen.by("gpuward_nodes_by_state", "state") == {"upgrade-done": 3, "upgrade-required": 1}
    assert seen.by("gpuward_nodes_by_group", "group") == {Group.UP_TO_DATE: 3, Group.HELD: 1}
    since = seen.by("gpuward_driver_upgrade_held_since_timestamp_seconds", "reason")
    assert set(since) == {"BudgetBlocks"}
    assert 3600 < seen.at - since["BudgetBlocks"] < 3900
    assert seen.of("gpuward_driver_upgrade_state_seconds_count", state="pod-restart-required") == 3
    assert 3 * 5 < seen.of("gpuward_driver_upgrade_state_seconds_sum", state="pod-restart-required") < 3 * 60
    assert "upgrade-done" not in seen.by("gpuward_driver_upgrade_state_seconds_count", "state")
    assert seen.by("gpuward_evictions_total", "result") == {"granted": 1}
    assert not [line for line in seen.text.splitlines() if "gpu-1" in line], "nodes are no labels: there are thousands"


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
async def test_how_long_a_reason_holds_begins_with_the_reason_and_not_with_the_state(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 1)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ParallelLimit")
    begun = Scrape(stage)
    await stage.rest(600)
    await stage.label("gpu-2", "nvidia.com/gpu-driver-upgrade.skip", "true")
    await stage.until(lambda: stage.hold("gpu-2") == "Skipped")
    since = Scrape(stage).by("gpuward_driver_upgrade_held_since_timestamp_seconds", "reason")
    assert since["Skipped"] >= begun.at + 600
    assert "ParallelLimit" not in since


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 1})
async def test_an_operand_is_troubled_by_what_is_wrong_and_not_by_upgrades(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    ready, troubled = "gpuward_operand_pods_ready", "gpuward_operand_troubled"
    await stage.until(lambda: Scrape(stage).of(ready, operand="device-plugin") == 2)
    assert Scrape(stage).by(troubled, "operand") == {}
    await stage.upgraded()
    await stage.until(lambda: Scrape(stage).of(ready, operand="device-plugin") == 3)
    stage.sandbox.faults.add(Fault(FaultKind.DEVICE_PLUGIN_CRASH, node="gpu-1"))
    plugin = next(pod for pod in stage.pods(node="gpu-1") if "device-plugin" in pod["metadata"]["name"])
    await stage.user.delete_pod(plugin["metadata"]["name"], "gpu-operator")
    await stage.until(lambda: Scrape(stage).by(troubled, "operand") == {"device-plugin": 1})
    seen = Scrape(stage)
    assert (seen.of(ready, operand="device-plugin"), seen.of("gpuward_operand_pods_desired", operand="device-plugin")) == (2, 3)


@on_stage(gpu_nodes=2)
async def test_waiting_for_pods_is_no_failed_reconciliation(stage: Stage) -> None:
    await stage.installed()
    total, failed = "gpu_operator_reconciliation_total", "gpu_operator_reconciliation_failed_total"
    seen = Scrape(stage)
    assert seen.of(total) > 10, "most of these passes waited for pods"
    assert seen.of(failed) == 0
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "many")
    await stage.until(lambda: stage.condition().get("reason") == "ReconcileFailed")
    assert Scrape(stage).of(failed) > 0


@on_stage(gpu_nodes=2)
async def test_a_write_that_is_refused_is_a_failed_reconciliation(stage: Stage) -> None:
    stage.transport.interfere = lambda request, proceed: (
        refusal(Forbidden("no services here")) if request.path.endswith("/services") and request.method == "POST" else proceed())
    await stage.until(lambda: Scrape(stage).of("gpu_operator_reconciliation_failed_total") > 2)
    await stage.rest(600)
    assert Scrape(stage).of("gpuward_api_requests_total", verb="create", resource="services", code="403") > 2


@on_stage(gpu_nodes=1)
async def test_policies_that_cannot_be_followed_are_counted_though_no_node_waits(stage: Stage) -> None:
    await stage.installed()
    seen = Scrape(stage)
    assert seen.by("gpuward_policies_not_followed", "kind") == {}
    assert seen.of("gpuward_policies_not_followed", kind="NVIDIADriver") == 0
    await apply(stage, windows=[{"schedule": "0 25 * * FRI", "duration": "8h"}])
    await stage.until(lambda: Scrape(stage).by("gpuward_policies_not_followed", "kind") == {"RolloutPolicy": 1})
    await stage.patch_policy("driver/repository", "a repository")
    await stage.until(lambda: Scrape(stage).by("gpuward_policies_not_followed", "kind") == {
        "ClusterPolicy": 1, "RolloutPolicy": 1})
    assert Scrape(stage).by("gpuward_nodes_by_group", "group") == {Group.UP_TO_DATE: 1}


@on_stage(gpu_nodes=2)
async def test_requests_and_passes_are_counted_and_timed(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    seen = Scrape(stage)
    made = 8 + 1  # the driver's is tried by a dry run first
    assert seen.of("gpuward_api_requests_total", verb="create", resource="daemonsets.apps", code="201") == made
    assert seen.of("gpuward_api_request_seconds_count", verb="create", resource="daemonsets.apps") == made
    assert seen.of("gpuward_api_request_seconds_bucket", verb="create", resource="daemonsets.apps", le="+Inf") == made
    assert set(seen.by("gpuward_pass_seconds_count", "controller")) == {
        "ClusterPolicy", "NVIDIADriver", "NodeLabeling", "RolloutPolicy", "Upgrade"}
    assert seen.by("gpuward_pass_crashes_total", "controller") == {}
    assert (seen.of("gpuward_leader"), seen.of("gpuward_build_info")) == (1, 1)


@on_stage(gpu_nodes=2)
async def test_the_metrics_are_those_of_the_table(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    listed = {PREFIX + name for name in FLEET} | {f"{PREFIX}{name}_total" for name in COUNTED}
    listed |= {full_name(name, told) for name, told in (OWN | OWN_FLEET).items()}
    listed -= {"gpuward_driver_upgrade_finish_timestamp_seconds"}  # there only while a rollout goes on, see test_time_left
    families = re.findall(r"^# TYPE (\S+)", Scrape(stage).text, re.MULTILINE)
    assert {name for name in families if not name.startswith(("process_", "python_"))} == listed
