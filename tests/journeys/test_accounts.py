"""Objects that gpuward made are made again when they go, whoever took them, and those of somebody else are left alone."""

from __future__ import annotations

from collections.abc import Callable

from gpuward import names
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import OLD, POLICY, Object, Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import condition, make, nvidia_driver

SPACE = names.DEFAULT_NAMESPACE


def accounts(stage: Stage) -> set[str]:
    return {account["metadata"]["name"] for account in stage.sandbox.store.list("serviceaccounts", SPACE)}


def unstartable(stage: Stage) -> list[str]:
    """Return the DaemonSets whose pods no API server would let in: what they name is not there, or goes with a dead owner."""
    alive = {obj["metadata"]["uid"] for key in ("clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
             for obj in stage.sandbox.store.list(key)}
    found = []
    for daemon_set in stage.sandbox.store.list("daemonsets.apps", SPACE):
        pod = daemon_set["spec"]["template"]["spec"]
        account = stage.sandbox.store.find("serviceaccounts", SPACE, pod["serviceAccountName"])
        if account is None or not _is_safe(account, alive):
            found.append(daemon_set["metadata"]["name"])
        runtime = pod.get("runtimeClassName")
        if runtime and stage.sandbox.store.find("runtimeclasses.node.k8s.io", None, runtime) is None:
            found.append(daemon_set["metadata"]["name"])
    return sorted(set(found))


def _is_safe(obj: Object, alive: set[str]) -> bool:
    return all(owner["uid"] in alive for owner in obj["metadata"].get("ownerReferences") or ())


async def made_again(stage: Stage) -> None:
    """Wait until everything is said to be ready, and see that it is."""
    await stage.rest(10)
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE))
    assert unstartable(stage) == []
    await stage.rest(300)
    assert unstartable(stage) == []
    assert stage.policy_status()["state"] == "ready"
    assert stage.drivers() == [OLD]


@on_stage(gpu_nodes=2)
async def test_service_accounts_that_somebody_deletes_are_made_again(stage: Stage) -> None:
    await stage.installed()
    before = accounts(stage)
    for name in sorted(before - {"default"}):
        await stage.user.delete(resources.SERVICE_ACCOUNTS, name, SPACE)
    await stage.rest(30)
    assert accounts(stage) == before
    await made_again(stage)


@on_stage(gpu_nodes=2)
async def test_a_policy_that_is_made_again_gets_its_service_accounts_again(stage: Stage) -> None:
    await stage.installed()
    before = accounts(stage)
    for propagation, rest in (("", 120), ("Foreground", 120), ("", 0), ("Orphan", 120)):
        await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation=propagation)
        await stage.rest(rest)
        await stage.user.create(resources.CLUSTER_POLICIES, policy())
        await made_again(stage)
        assert accounts(stage) == before


@on_stage(gpu_nodes=2)
async def test_an_nvidiadriver_that_is_made_again_gets_its_service_account_again(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    before = accounts(stage)
    await stage.user.delete(resources.SERVICE_ACCOUNTS, next(name for name in before if "default-ubuntu" in name), SPACE)
    await stage.rest(30)
    assert accounts(stage) == before
    for propagation, rest in (("", 120), ("Foreground", 120), ("", 0)):
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation=propagation)
        await stage.rest(rest)
        await make(stage, nvidia_driver("default", default=True))
        await made_again(stage)
        assert condition(stage, "default")[0] == "ready"
        assert accounts(stage) == before


THEIRS: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{"name": "theirs"}],
                  "metadata": {"name": "nvidia-driver", "namespace": SPACE}}


@on_stage(gpu_nodes=1, objects=[THEIRS])
async def test_an_account_that_was_there_before_is_left_alone_until_its_people_delete_it(stage: Stage) -> None:
    await stage.installed()
    await stage.restart_operator()
    await stage.rest(60)
    account = stage.get("serviceaccounts", "nvidia-driver")
    assert account["imagePullSecrets"] == [{"name": "theirs"}]
    assert "ownerReferences" not in account["metadata"]
    await stage.user.delete(resources.SERVICE_ACCOUNTS, "nvidia-driver", SPACE)
    await stage.until(lambda: "nvidia-driver" in accounts(stage), 30)
    assert stage.get("serviceaccounts", "nvidia-driver")["metadata"]["ownerReferences"][0]["name"] == POLICY
    await made_again(stage)


class Refusing:
    """Refuse to make the driver's service account while that is wanted."""

    wanted = False

    def __call__(self, request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        """Answer a request."""
        making = request.method == "POST" and request.path.endswith("/serviceaccounts")
        if self.wanted and making and b'"nvidia-driver"' in (request.body or b""):
            return refusal(Forbidden("serviceaccounts is forbidden"))
        return proceed()


REFUSING = Refusing()


@on_stage(gpu_nodes=1, interfere=REFUSING)
async def test_a_status_names_the_account_that_cannot_be_made(stage: Stage) -> None:
    await stage.installed()
    REFUSING.wanted = True
    await stage.user.delete(resources.SERVICE_ACCOUNTS, "nvidia-driver", SPACE)
    await stage.rest(300)
    assert stage.policy_status()["state"] == "notReady", "no pod of the driver can start"
    told = "Failed to reconcile state-driver: ServiceAccount nvidia-driver cannot be written: serviceaccounts is forbidden"
    assert stage.condition()["message"] == told
    REFUSING.wanted = False
    await made_again(stage)
