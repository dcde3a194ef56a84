"""What is refused a pod before it is stored: its account, its runtime class, and what its namespace forbids."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpuward.kube.resources import DAEMON_SETS, DEPLOYMENTS, EVENTS, GVR, NAMESPACES, PODS, RUNTIME_CLASSES, SERVICE_ACCOUNTS
from tests.contract.api import Api, Object
from tests.contract.objects import names, pod, workload

JOBS = GVR("batch", "v1", "jobs", True)
REPLICA_SETS = GVR("apps", "v1", "replicasets", True)
LABEL = "pod-security.kubernetes.io/"
ALLOWED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
           "seccompProfile": {"type": "RuntimeDefault"}}


def secured(api: Api, **modes: str) -> None:
    """Label the test's namespace, and wait until that is heeded; `enforce_version` becomes the label `enforce-version`.

    A real API server goes by what it watches, which may be a moment behind.
    """
    labels = {LABEL + name.replace("_", "-"): value for name, value in modes.items()}
    assert api.merge(NAMESPACES.path("", api.ns), {"metadata": {"labels": labels}}).status == 200
    for _ in range(100):
        tried = api.post(PODS.path(api.ns), pod("tried", hostPID=True), dryRun="All")
        if tried.status == 403 or tried.warnings or "privileged" in modes.values():
            return
        time.sleep(0.1)
    raise AssertionError(f"{labels} are not heeded")


def container(name: str, **context: Any) -> Object:
    return {"name": name, "image": "registry.example/app:1", "securityContext": context}


# The account.

def test_a_pod_needs_its_service_account(api: Api) -> None:
    refused = api.post(PODS.path(api.ns), pod("a", serviceAccountName="nobody"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (f'pods "a" is forbidden: error looking up service account {api.ns}/nobody: '
                               'serviceaccount "nobody" not found')
    assert refused.body["details"] == {"name": "a", "kind": "pods"}
    api.made(SERVICE_ACCOUNTS.path(api.ns), {"metadata": {"name": "nobody"}})
    assert api.made(PODS.path(api.ns), pod("a", serviceAccountName="nobody"))["spec"]["serviceAccount"] == "nobody"


def test_a_refusal_names_the_beginning_of_a_name_that_is_yet_to_be_made(api: Api) -> None:
    body = pod("a", serviceAccountName="nobody")
    body["metadata"] = {"generateName": "agent-"}
    assert api.post(PODS.path(api.ns), body).message.startswith('pods "agent-" is forbidden: error looking up')


def test_a_pod_that_names_no_account_runs_under_the_one_that_every_namespace_has(api: Api) -> None:
    assert api.made(PODS.path(api.ns), pod("a"))["spec"]["serviceAccountName"] == "default"
    at = f"{SERVICE_ACCOUNTS.path(api.ns)}/default"
    first = api.get(at).body["metadata"]["uid"]
    api.delete(at)
    assert api.when(at, lambda one: one["metadata"]["uid"] != first)
    assert api.post(PODS.path(api.ns), pod("b")).status == 201


def test_a_pod_right_after_its_namespace_waits_for_the_default_account(api: Api) -> None:
    inner = f"{api.ns}-inner"
    api.cluster_wide(NAMESPACES.path(), {"metadata": {"name": inner}})
    assert api.post(PODS.path(inner), pod("a")).status == 201


def test_a_pod_gets_the_pull_secrets_of_its_account(api: Api) -> None:
    api.made(SERVICE_ACCOUNTS.path(api.ns), {"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "key"}]})
    made = api.made(PODS.path(api.ns), pod("a", serviceAccountName="puller"))
    assert made["spec"]["imagePullSecrets"] == [{"name": "key"}]
    own = api.made(PODS.path(api.ns), pod("b", serviceAccountName="puller", imagePullSecrets=[{"name": "own"}]))
    assert own["spec"]["imagePullSecrets"] == [{"name": "own"}]


def test_a_pod_keeps_running_without_its_account_and_cannot_change_it(api: Api) -> None:
    api.made(SERVICE_ACCOUNTS.path(api.ns), {"metadata": {"name": "mine"}})
    api.made(PODS.path(api.ns), pod("a", node="nowhere", serviceAccountName="mine"))
    api.delete(f"{SERVICE_ACCOUNTS.path(api.ns)}/mine")
    at = f"{PODS.path(api.ns)}/a"
    assert api.merge(at, {"metadata": {"labels": {"still": "here"}}}).status == 200
    assert api.merge(at, {"spec": {"serviceAccountName": "default", "serviceAccount": "default"}}).status == 422


@pytest.mark.parametrize(("resource", "kind", "component"), [
    (DAEMON_SETS, "DaemonSet", "daemonset-controller"), (REPLICA_SETS, "ReplicaSet", "replicaset-controller"),
    (JOBS, "Job", "job-controller")])
def test_who_makes_pods_tells_of_refusals_and_tries_again(api: Api, resource: GVR, kind: str, component: str) -> None:
    api.node()
    body = workload(kind, "agent", template={"nodeSelector": {"test": api.ns}, "serviceAccountName": "late"})
    if kind == "Job":
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "agent"}, "spec": {
            "template": {"spec": {**body["spec"]["template"]["spec"], "restartPolicy": "Never"}}}}
    api.made(resource.path(api.ns), body)
    told = api.until(EVENTS.path(api.ns), lambda found: any(one["reason"] == "FailedCreate" for one in found))
    (one,) = [event for event in told if event["reason"] == "FailedCreate"][:1]
    assert one["message"] == (f'Error creating: pods "agent-" is forbidden: error looking up service account {api.ns}/late: '
                              'serviceaccount "late" not found')
    assert (one["type"], one["involvedObject"]["kind"], one["source"]["component"]) == ("Warning", kind, component)
    api.made(SERVICE_ACCOUNTS.path(api.ns), {"metadata": {"name": "late"}})
    (made,) = api.until(PODS.path(api.ns), lambda found: len(found) == 1)
    assert made["spec"]["serviceAccountName"] == "late"


def test_pods_of_an_indexed_job_have_their_index(api: Api) -> None:
    api.node()
    container = {"name": "main", "image": "pause"}
    api.made(JOBS.path(api.ns), {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gang"}, "spec": {
        "completionMode": "Indexed", "completions": 3, "parallelism": 2, "template": {
            "spec": {"nodeSelector": {"test": api.ns}, "restartPolicy": "Never", "containers": [container]}}}})
    pods = sorted(api.until(PODS.path(api.ns), lambda found: len(found) == 2), key=lambda one: one["spec"]["hostname"])
    index = "batch.kubernetes.io/job-completion-index"
    found = [(one["metadata"]["labels"][index], one["metadata"]["annotations"][index], one["spec"]["hostname"],
              one["metadata"]["generateName"]) for one in pods]
    assert found == [("0", "0", "gang-0", "gang-0-"), ("1", "1", "gang-1", "gang-1-")]
    assert pods[0]["spec"]["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
        "apiVersion": "v1", "fieldPath": f"metadata.labels['{index}']"}}}]


def test_a_refused_daemon_set_goes_on_telling_its_status(api: Api) -> None:
    api.node()
    api.made(DAEMON_SETS.path(api.ns), workload("DaemonSet", "agent", template={
        "nodeSelector": {"test": api.ns}, "serviceAccountName": "late"}))
    api.when(f"{DAEMON_SETS.path(api.ns)}/agent", lambda one: (
        one["status"].get("observedGeneration") == 1 and one["status"]["desiredNumberScheduled"] == 1
        and one["status"]["currentNumberScheduled"] == 0))


# The order.

def test_a_refusal_comes_before_the_news_that_the_name_is_taken(api: Api) -> None:
    api.made(PODS.path(api.ns), pod("a"))
    assert api.post(PODS.path(api.ns), pod("a")).status == 409
    assert api.post(PODS.path(api.ns), pod("a", serviceAccountName="nobody")).status == 403
    assert api.post(PODS.path(api.ns), pod("a", containers=[])).status == 422
    assert api.post(PODS.path(api.ns), pod("a"), dryRun="All").status == 409


def test_an_account_is_looked_for_before_the_pod_is_validated(api: Api) -> None:
    assert api.post(PODS.path(api.ns), pod("a", serviceAccountName="nobody", containers=[])).status == 403


# The runtime class and the priority.

def test_a_pod_needs_its_runtime_class(api: Api) -> None:
    name = f"{api.ns}-runtime"
    refused = api.post(PODS.path(api.ns), pod("a", runtimeClassName=name))
    assert (refused.status, refused.message) == (403, (
        f'pods "a" is forbidden: pod rejected: RuntimeClass "{name}" not found'))
    api.cluster_wide(RUNTIME_CLASSES.path(), {"metadata": {"name": name}, "handler": "nvidia", "scheduling": {
        "nodeSelector": {"gpu": "yes"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}})
    made = api.made(PODS.path(api.ns), pod("a", runtimeClassName=name))
    assert made["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert {"key": "gpu", "operator": "Exists"} in made["spec"]["tolerations"]
    against = api.post(PODS.path(api.ns), pod("b", runtimeClassName=name, nodeSelector={"gpu": "no"}))
    assert (against.status, "conflict: runtimeClass.scheduling.nodeSelector[gpu] = yes" in against.message) == (403, True)


def test_a_pod_cannot_say_its_priority_itself(api: Api) -> None:
    refused = api.post(PODS.path(api.ns), pod("a", priority=7))
    assert (refused.status, "priority admission controller computed 0" in refused.message) == (403, True)
    unknown = api.post(PODS.path(api.ns), pod("a", priorityClassName="nothing"))
    assert (unknown.status, "no PriorityClass with name nothing was found" in unknown.message) == (403, True)


# Pod Security.

BASELINE: list[Any] = [
    ({"containers": [container("c", privileged=True)]},
     'privileged (container "c" must not set securityContext.privileged=true)'),
    ({"containers": [container("c", privileged=True)], "initContainers": [container("i", privileged=True)]},
     'privileged (containers "i", "c" must not set securityContext.privileged=true)'),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/dev"}}]},
     'hostPath volumes (volumes "v", "w")'),
    ({"hostNetwork": True, "hostPID": True, "hostIPC": True}, "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)"),
    ({"containers": [{**container("c"), "ports": [{"containerPort": 80, "hostPort": 8080}]}]},
     'hostPort (container "c" uses hostPort 8080)'),
    ({"containers": [container("c", capabilities={"add": ["SYS_ADMIN", "CHOWN", "NET_RAW"]})]},
     'non-default capabilities (container "c" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)'),
    ({"containers": [container("c", seccompProfile={"type": "Unconfined"})]},
     'seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")'),
    pytest.param({"containers": [{**container("c"), "livenessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}]},
                 'probe or lifecycle host (container "c" uses probe or lifecycle host "10.0.0.1")',
                 marks=pytest.mark.since("1.36")),
    ({"hostPID": True, "containers": [container("c", privileged=True)], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
     'host namespaces (hostPID=true), hostPath volumes (volume "v"), privileged (container "c" must not set '
     "securityContext.privileged=true)"),
]


@pytest.mark.parametrize(("spec", "told"), BASELINE)
def test_baseline_refuses(api: Api, spec: Object, told: str) -> None:
    secured(api, enforce="baseline")
    refused = api.post(PODS.path(api.ns), pod("x", **spec))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == f'pods "x" is forbidden: violates PodSecurity "baseline:latest": {told}'


RESTRICTED: list[tuple[Object, str]] = [
    ({"containers": [container("c")]},
     'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), '
     'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), '
     'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), '
     'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'),
    ({"containers": [container("c", **{**ALLOWED, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}})]},
     'unrestricted capabilities (container "c" must not include "CHOWN" in securityContext.capabilities.add)'),
    ({"containers": [container("c", **ALLOWED)], "volumes": [{"name": "v", "hostPath": {"path": "/"}},
                                                            {"name": "n", "nfs": {"server": "s", "path": "/"}}]},
     'restricted volume types (volumes "v", "n" use restricted volume types "hostPath", "nfs")'),
    ({"containers": [container("c", **{**ALLOWED, "runAsNonRoot": False})], "securityContext": {"runAsNonRoot": False}},
     'runAsNonRoot != true (pod and container "c" must not set securityContext.runAsNonRoot=false)'),
    ({"containers": [container("c", **{**ALLOWED, "runAsUser": 0})]}, 'runAsUser=0 (container "c" must not set runAsUser=0)'),
    ({"containers": [container("c", **{**ALLOWED, "seccompProfile": {"type": "Unconfined"}})]},
     'seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")'),
    ({"containers": [container("c", **ALLOWED)], "hostPID": True}, "host namespaces (hostPID=true)"),
]


@pytest.mark.parametrize(("spec", "told"), RESTRICTED)
def test_restricted_refuses(api: Api, spec: Object, told: str) -> None:
    secured(api, enforce="restricted")
    refused = api.post(PODS.path(api.ns), pod("x", **spec))
    assert (refused.status, refused.message) == (403, (
        f'pods "x" is forbidden: violates PodSecurity "restricted:latest": {told}'))


@pytest.mark.parametrize(("level", "spec"), [
    ("privileged", {"hostPID": True}),
    ("baseline", {"containers": [container("c", capabilities={"add": ["CHOWN"]})], "volumes": [{"name": "e", "emptyDir": {}}]}),
    ("restricted", {"containers": [container("c", **ALLOWED)], "volumes": [{"name": "m", "configMap": {"name": "x"}}]}),
    ("restricted", {"containers": [container("c", allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]})],
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}),
])
def test_what_a_level_allows_is_accepted(api: Api, level: str, spec: Object) -> None:
    secured(api, enforce=level)
    assert api.post(PODS.path(api.ns), pod("x", **spec)).status == 201


def test_the_version_of_a_standard_decides_which_checks_there_are(api: Api) -> None:
    secured(api, enforce="restricted", enforce_version="v1.0")
    refused = api.post(PODS.path(api.ns), pod("x", containers=[container("c")]))
    assert refused.message == ('pods "x" is forbidden: violates PodSecurity "restricted:v1.0": runAsNonRoot != true '
                               '(pod or container "c" must set securityContext.runAsNonRoot=true)')


def test_warnings_come_with_what_is_accepted(api: Api) -> None:
    secured(api, warn="baseline", audit="restricted")
    reply = api.post(PODS.path(api.ns), pod("x", hostPID=True))
    assert (reply.status, reply.warnings) == (201, [
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'])
    assert api.post(PODS.path(api.ns), pod("y")).warnings == []


@pytest.mark.parametrize(("resource", "kind"), [(DAEMON_SETS, "DaemonSet"), (DEPLOYMENTS, "Deployment")])
def test_a_workload_is_accepted_with_a_warning_and_its_pods_are_not(api: Api, resource: GVR, kind: str) -> None:
    api.node()
    secured(api, enforce="baseline")
    template = {"nodeSelector": {"test": api.ns}, "hostPID": True}
    made = api.post(resource.path(api.ns), workload(kind, "agent", template=template))
    told = 'violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    assert (made.status, made.warnings) == (201, [f"would {told}"])
    found = api.until(EVENTS.path(api.ns), lambda events: any(one["reason"] == "FailedCreate" for one in events))
    (one,) = [event for event in found if event["reason"] == "FailedCreate"][:1]
    # Whole names, since Pod Security judges a pod that has got its name.
    assert one["message"].startswith('Error creating: pods "agent-')
    assert not one["message"].startswith('Error creating: pods "agent-"')
    assert one["message"].endswith('violates PodSecurity "baseline:latest": host namespaces (hostPID=true)')
    assert api.get(PODS.path(api.ns)).body["items"] == []
    changed = api.merge(f"{resource.path(api.ns)}/agent", {"metadata": {"annotations": {"a": "b"}}})
    assert changed.warnings == [f"would {told}"]


def test_labels_on_a_namespace_warn_of_the_pods_that_are_there_and_touch_none(api: Api) -> None:
    for name, spec in (("a", {"hostPID": True}), ("b", {"hostPID": True}), ("c", {"hostIPC": True}), ("d", {}),
                       ("e", {"containers": [container("c", privileged=True)]})):
        api.made(PODS.path(api.ns), pod(name, node="nowhere", **spec))
    label = {"metadata": {"labels": {LABEL + "enforce": "baseline"}}}
    for _ in range(100):  # a real API server knows the pods from what it watches, too
        if "e: privileged" in api.merge(NAMESPACES.path("", api.ns), label, dryRun="All").warnings:
            break
        time.sleep(0.1)
    labelled = api.merge(NAMESPACES.path("", api.ns), label)
    assert labelled.warnings == [
        f'existing pods in namespace "{api.ns}" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 2 other pods): host namespaces", "e: privileged"]
    assert names(api.get(PODS.path(api.ns)).body) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(("label", "value", "rule"), [
    ("enforce", "strict", "must be one of privileged, baseline, restricted"),
    ("warn-version", "1.36", 'must be "latest" or "v1.x"')])
def test_labels_that_mean_nothing_are_refused(api: Api, label: str, value: str, rule: str) -> None:
    refused = api.merge(NAMESPACES.path("", api.ns), {"metadata": {"labels": {LABEL + label: value}}})
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", f"metadata.labels[{LABEL}{label}]")})
    assert refused.message.endswith(f'Invalid value: "{value}": {rule}')
