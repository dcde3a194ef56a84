"""What driver pods need stays as long as they run, and goes with the last of them, however drivers come to be somebody else's."""

from __future__ import annotations

from gpuward import names
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_moves import with_one_owner
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver

ACCOUNT = "nvidia-driver"
PROBE = "nvidia-driver-startup-probe"
NEEDED = (("serviceaccounts", names.DEFAULT_NAMESPACE), ("roles.rbac.authorization.k8s.io", names.DEFAULT_NAMESPACE),
          ("rolebindings.rbac.authorization.k8s.io", names.DEFAULT_NAMESPACE), ("clusterroles.rbac.authorization.k8s.io", None),
          ("clusterrolebindings.rbac.authorization.k8s.io", None))


def there(stage: Stage) -> list[str]:
    """Return what is there of what the ClusterPolicy's driver pods need."""
    return [key for key, namespace in NEEDED if stage.sandbox.store.find(key, namespace, ACCOUNT) is not None]


def probe(stage: Stage) -> str:
    """Return whose the ConfigMap of the startup probe is, empty where it is not there."""
    found = stage.sandbox.store.find("configmaps", names.DEFAULT_NAMESPACE, PROBE)
    return "" if found is None else str(found["metadata"]["ownerReferences"][0]["kind"])


@on_stage(gpu_nodes=2)
async def test_what_the_policy_s_drivers_need_goes_with_the_last_of_them(stage: Stage) -> None:
    await stage.installed()
    lacked: list[str] = []

    def saw(_: object) -> None:
        apps = {pod["metadata"]["labels"].get("app") for pod in driver_pods(stage)}
        if names.DRIVER_APP in apps and (len(there(stage)) < len(NEEDED) or not probe(stage)):
            lacked.append(f"{apps} with {there(stage)}, probe of {probe(stage)}")

    stage.sandbox.store.subscribe(saw)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(300)
    assert len(there(stage)) == len(NEEDED), "without an NVIDIADriver the pods run on"
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.upgraded()
    await stage.until(lambda: not there(stage), within=60)
    assert probe(stage) == "NVIDIADriver", "its pods mount it, too"
    assert lacked == []


@on_stage(gpu_nodes=2)
async def test_the_probe_of_drivers_that_run_on_stays_where_the_policy_s_are_switched_off(stage: Stage) -> None:
    await with_one_owner(stage)
    await stage.patch_policy("driver/enabled", False)
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(300)
    assert len(driver_pods(stage)) == 2
    assert probe(stage)


@on_stage(gpu_nodes=2)
async def test_an_nvidiadriver_that_is_not_in_force_keeps_nothing(stage: Stage) -> None:
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await stage.patch_policy("driver/enabled", False)
    await stage.until(lambda: not driver_pods(stage) and not there(stage) and not probe(stage), within=300)
