"""Kubernetes JSON to views: what is kept, what absent fields mean, what cannot be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.containers import PullProgress
from gpuward.model.cordons import is_driver_managers
from gpuward.model.record import Record, encode_record
from gpuward.model.states import State
from gpuward.model.taints import Taint, Toleration
from gpuward.model.views import Owner, PodView, RevisionView
from gpuward.wire.daemonsets import daemonset_view, owned_view, revision_view
from gpuward.wire.nodes import node_view
from gpuward.wire.pods import keep_pods, pod_view
from gpuward.wire.policies import policy_view

CREATED = "2026-01-02T03:04:05Z"
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "drv", "uid": "ds-1", "controller": True}


def raw(**obj: Any) -> bytes:
    """Encode an object."""
    return msgspec.json.encode(obj)


def test_a_node_keeps_all_its_labels_and_the_annotations_of_ours() -> None:
    view = node_view(raw(
        metadata={
            "name": "n0", "uid": "u", "resourceVersion": "7", "creationTimestamp": CREATED,
            "labels": {"nvidia.com/gpu.present": "true", names.NFD_KERNEL: "6.8", "topology.kubernetes.io/zone": "a"},
            "annotations": {"nvidia.com/x": "1", "other": "2"},
        },
        spec={"unschedulable": True, "taints": [{"key": names.CORDON_TAINT, "effect": "NoSchedule"},
                                                {"key": "team", "value": "a", "effect": "NoExecute", "timeAdded": CREATED}]},
        status={"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "nodeInfo": {"containerRuntimeVersion": "containerd://1.7.27"}},
    ))
    assert view.labels == {"nvidia.com/gpu.present": "true", names.NFD_KERNEL: "6.8", "topology.kubernetes.io/zone": "a"}
    assert view.annotations == {"nvidia.com/x": "1"}
    assert (view.unschedulable, view.ready, view.runtime, view.version) == (True, True, "containerd", "7")
    assert view.created == 1767323045.0
    assert view.taints == (Taint("team", "a", "NoExecute"),)


@pytest.mark.parametrize(("conditions", "ready"), [
    ([{"type": "Ready", "status": "True"}], True),
    ([{"type": "Ready", "status": "False"}], False),
    ([{"type": "Ready", "status": "Unknown"}], None),
    ([], None),
    (None, None),
])
def test_a_node_that_does_not_say_that_it_is_ready_is_not(conditions: Any, ready: bool | None) -> None:
    assert node_view(raw(metadata={"name": "n"}, status={"conditions": conditions})).ready is ready


def test_a_node_without_annotations_says_so() -> None:
    assert not node_view(raw(metadata={"name": "n"})).has_annotations
    assert node_view(raw(metadata={"name": "n", "annotations": {}})).has_annotations


def test_our_record_is_read_and_garbage_is_told_apart_from_nothing() -> None:
    record = Record(State.DONE, since=5.0, target="abc")
    annotations = {names.UPGRADE_RECORD: encode_record(record)}
    assert node_view(raw(metadata={"name": "n", "annotations": annotations})).record == record
    spoilt = node_view(raw(metadata={"name": "n", "annotations": {names.UPGRADE_RECORD: "{nonsense"}}))
    assert spoilt.record is None
    assert spoilt.record_error
    assert not node_view(raw(metadata={"name": "n"})).record_error


@pytest.mark.parametrize(("cordoners", "unschedulable", "nvidias"), [
    (["driver-manager"], True, True), (["driver-manager", "kubectl-cordon"], True, False), (["kubectl-cordon"], True, False),
    ([], True, False), (["driver-manager"], False, False),
])
def test_whose_a_cordon_without_a_note_is(cordoners: list[str], unschedulable: bool, nvidias: bool) -> None:
    fields = [{"manager": each, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}} for each in cordoners]
    fields.append({"manager": "kubelet", "fieldsV1": {"f:spec": {"f:podCIDR": {}}}})
    node = node_view(raw(metadata={"name": "n", "managedFields": fields}, spec={"unschedulable": unschedulable}))
    assert is_driver_managers(node) is nvidias


@pytest.mark.parametrize(("state", "since"), [("pending", 60.0), ("failed", 60.0), ("success", 0.0), (None, 0.0)])
def test_since_when_a_mig_layout_is_not_well(state: str | None, since: float) -> None:
    fields = [{"manager": "nvidia-mig-manager", "time": "1970-01-01T00:01:00Z",
               "fieldsV1": {"f:metadata": {"f:labels": {"f:nvidia.com/mig.config.state": {}}}}},
              {"manager": "kubelet", "time": "2026-01-01T00:01:00Z", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]
    labels = {} if state is None else {names.MIG_STATE: state}
    assert node_view(raw(metadata={"name": "n", "labels": labels, "managedFields": fields})).mig_since == since
    assert node_view(raw(metadata={"name": "n", "labels": labels})).mig_since == 0.0


def pod(**change: Any) -> dict[str, Any]:
    """Build a running pod with one container."""
    body: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u", "ownerReferences": [OWNER]},
        "spec": {"nodeName": "n0", "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 3}]},
    }
    for key, value in change.items():
        body[key] = {**body[key], **value}
    return body


def view(**change: Any) -> PodView:
    """Decode a changed pod."""
    return pod_view(raw(**pod(**change)))


def test_a_pod_of_a_daemonset() -> None:
    assert view().owner == Owner("DaemonSet", "drv", "ds-1")
    assert (view().grace, view(spec={"terminationGracePeriodSeconds": 5}).grace) == (30.0, 5.0)
    assert (view().ready, view().orphan, view().node, view().uses_gpu) == (True, False, "n0", False)


@pytest.mark.parametrize(("status", "ready", "restarts"), [
    ({"phase": "Pending"}, False, 0),
    ({"containerStatuses": []}, False, 0),
    ({"containerStatuses": [{"ready": True}, {"ready": False, "restartCount": 12}]}, False, 12),
    ({"containerStatuses": [{"ready": True}], "initContainerStatuses": [{"ready": False, "restartCount": 4}]}, True, 4),
    ({"phase": "Pending", "containerStatuses": [{"ready": True, "restartCount": 99}]}, False, 0),
])
def test_readiness_and_restarts(status: dict[str, Any], ready: bool, restarts: int) -> None:
    assert (view(status=status).ready, view(status=status).restarts) == (ready, restarts)


@pytest.mark.parametrize(("ready", "condition", "gates", "expected"), [
    (True, "True", [], (True, False)),
    (True, "False", [], (False, True)),
    (True, "False", [{"conditionType": "example.com/balanced"}], (True, False)),
    (False, "False", [], (False, False)),
])
def test_a_pod_whose_node_fell_silent_is_not_ready(
    ready: bool, condition: str, gates: list[Any], expected: tuple[bool, bool]
) -> None:
    """The node controller sets the condition alone; a readiness gate does so too, and says nothing about the containers."""
    status = {"containerStatuses": [{"ready": ready}], "conditions": [{"type": "Ready", "status": condition}]}
    pod = view(status=status, spec={"readinessGates": gates})
    assert (pod.ready, pod.unheard) == expected


def test_the_reason_for_which_a_container_waits() -> None:
    waiting = {"ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    assert view(status={"phase": "Pending", "containerStatuses": [waiting]}).waiting == "ImagePullBackOff"


def test_since_when_its_containers_have_run() -> None:
    first, second = ({"state": {"running": {"startedAt": f"1970-01-01T00:00:{at}Z"}}} for at in ("07", "09"))
    ended = {"state": {"terminated": {"startedAt": "1970-01-01T00:00:01Z", "exitCode": 1}}}
    assert view(status={"containerStatuses": [ended, second, first]}).started == 7.0
    assert (view(status={"containerStatuses": [ended]}).started, view().started) == (0.0, 0.0)


@pytest.mark.parametrize(("status", "bound"), [("True", 9.0), ("False", 0.0)])
def test_when_a_pod_was_given_its_node(status: str, bound: float) -> None:
    waited = {"type": "PodScheduled", "status": status, "lastTransitionTime": "1970-01-01T00:00:09Z"}
    assert view(status={"conditions": [waited]}).bound == bound


@pytest.mark.parametrize(("resources", "uses"), [
    ({"limits": {"nvidia.com/gpu": "1"}}, True),
    ({"requests": {"nvidia.com/gpu.shared": 2}}, True),
    ({"limits": {"nvidia.com/mig-1g.10gb": "1"}}, True),
    ({"limits": {"cpu": "1", "example.com/gpu": "1"}}, False),
    ({}, False),
])
def test_who_uses_a_gpu(resources: dict[str, Any], uses: bool) -> None:
    assert view(spec={"containers": [{"name": "a"}, {"name": "b", "resources": resources}]}).uses_gpu is uses


def env(value: str, name: str = names.VISIBLE_DEVICES) -> list[dict[str, str]]:
    return [{"name": name, "value": value}]


def host_path(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


@pytest.mark.parametrize(("spec", "how"), [
    ({"runtimeClassName": "nvidia"}, "runtimeClass nvidia"),
    ({"runtimeClassName": "nvidia-cdi"}, "runtimeClass nvidia-cdi"),
    ({"runtimeClassName": "kata"}, ""),
    (host_path("/dev/nvidia0"), "hostPath /dev/nvidia0"),
    (host_path("/dev/nvidia-caps"), "hostPath /dev/nvidia-caps"),
    (host_path("/run/nvidia/driver"), "hostPath /run/nvidia/driver"),
    (host_path("/var/run/nvidia/driver/usr/lib/"), "hostPath /var/run/nvidia/driver/usr/lib/"),
    (host_path("/run/nvidia/driver-logs"), ""),
    (host_path("/dev"), ""),
    (host_path("/sys"), ""),
    ({"containers": [{"name": "a"}, {"name": "b", "env": env("all")}]}, "NVIDIA_VISIBLE_DEVICES=all"),
    ({"ephemeralContainers": [{"name": "debug", "env": env("0")}]}, "NVIDIA_VISIBLE_DEVICES=0"),
    ({"containers": [{"name": "a", "env": env("all")}, {"name": "b", "env": env("0"), "securityContext": {"privileged": True}}]},
     "privileged, NVIDIA_VISIBLE_DEVICES=0"),
    ({"containers": [{"name": "a", "env": env("all")}],
      "initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
     "init container i asks for nvidia.com/gpu"),
    ({"containers": [{"name": "a", "env": env("void")}]}, ""),
    ({"containers": [{"name": "a", "env": env("none")}]}, ""),
    ({"containers": [{"name": "a", "env": [{"name": names.VISIBLE_DEVICES, "valueFrom": {}}]}]}, ""),
    ({"containers": [{"name": "a", "env": env("all", "OTHER")}]}, ""),
])
def test_by_what_a_pod_holds_the_driver_without_asking_for_a_gpu(spec: dict[str, Any], how: str) -> None:
    assert (view(spec=spec).holds, view(spec=spec).uses_gpu) == (how, False)


def test_a_pod_that_asks_for_a_gpu_is_a_user_and_no_holder() -> None:
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    asks = view(spec={"runtimeClassName": "nvidia", "containers": [{"name": "a", "resources": gpu}]})
    assert (asks.uses_gpu, asks.holds) == (True, "")


def test_a_daemonset_pod_that_goes_with_the_operands_labels_holds_nothing() -> None:
    spec = {"runtimeClassName": "nvidia", "nodeSelector": {names.DEPLOY_PREFIX + "client": "true"}}
    assert view(spec=spec).holds == ""
    assert view(spec={**spec, "nodeSelector": {"gpu": "yes"}}).holds
    assert view(spec=spec, metadata={"ownerReferences": []}).holds, "no DaemonSet would take the pod away"


@pytest.mark.parametrize(("restart", "ready", "how"), [
    ({}, False, "init container load asks for nvidia.com/gpu"),
    ({}, True, ""),
    ({"restartPolicy": "Always"}, True, "init container load asks for nvidia.com/gpu"),
])
def test_an_init_container_holds_the_driver_until_it_has_ended(restart: dict[str, str], ready: bool, how: str) -> None:
    init = {"name": "load", "resources": {"limits": {"nvidia.com/gpu": "1"}}, **restart}
    pod = view(spec={"initContainers": [init]}, status={"initContainerStatuses": [{"name": "load", "ready": ready}]})
    assert (pod.holds, pod.uses_gpu) == (how, False)


def test_the_claims_of_a_pod_are_those_named_those_made_from_templates_and_that_of_extended_resources() -> None:
    pod = view(
        spec={"resourceClaims": [{"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "t"},
                                 {"name": "c", "resourceClaimTemplateName": "t"}],
              "containers": [{"name": "main", "resources": {"claims": [{"name": "b", "request": "r"}]}}]},
        status={"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x7z"}, {"name": "c"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-f2k", "requestMappings": []}},
    )
    assert pod.claims == ("shared", "p-b-x7z", "p-extended-resources-f2k")
    assert pod.consumed == ("p-b-x7z", "p-extended-resources-f2k"), "no container is given the devices of the others"
    assert (view().claims, view().consumed) == ((), ())


def test_a_pod_without_a_node_is_meant_for_the_one_that_its_daemonset_names() -> None:
    def meant_for(field: dict[str, Any], node: str = "") -> str:
        terms = {"nodeSelectorTerms": [{"matchExpressions": []}, {"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return view(spec={"nodeName": node, "affinity": affinity}).meant_for

    named: dict[str, Any] = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    assert (meant_for(named), meant_for(named, "n0")) == ("n0", "")
    others: list[dict[str, Any]] = [{"operator": "NotIn"}, {"values": ["n0", "n1"]}, {"key": "metadata.namespace"}]
    assert [meant_for({**named, **other}) for other in others] == ["", "", ""]
    bare: list[dict[str, Any]] = [{}, {"nodeAffinity": {}}, {"podAffinity": {}}]
    assert [view(spec={"nodeName": "", "affinity": affinity}).meant_for for affinity in bare] == ["", "", ""]


def test_the_driver_digest_is_the_first_that_is_not_empty_init_containers_first() -> None:
    def env(value: str) -> list[dict[str, str]]:
        return [{"name": names.DRIVER_CONFIG_DIGEST, "value": value}]

    spec = {"initContainers": [{"env": env("")}, {"env": env("11")}], "containers": [{"env": env("22")}]}
    assert view(spec=spec).config_digest == "11"
    assert view(spec={"containers": [{"env": env("22")}]}).config_digest == "22"


def test_what_is_kept_of_a_fleets_pods() -> None:
    keep = keep_pods("gpu-operator", [lambda pod: pod.labels.get("job") == "long"])
    ours = PodView("gpu-operator", "driver", owner=Owner("DaemonSet", "drv", "1"))
    assert keep(ours), "ours is kept even before it has a node"
    assert keep(PodView("gpu-operator", "left", labels={"app": names.DRIVER_APP}, orphan=True))
    assert keep(PodView("gpu-operator", "left", labels={names.COMPONENT_LABEL: names.DRIVER_COMPONENT}, orphan=True))
    assert not keep(PodView("gpu-operator", "other", node="n0", orphan=True))
    assert keep(PodView("ml", "train", node="n0", uses_gpu=True))
    assert not keep(PodView("ml", "train", uses_gpu=True)), "a pod without a node disturbs none"
    assert keep(PodView("ml", "job", node="n0", labels={"job": "long"}))
    assert keep(PodView("ml", "dra", node="n0", claims=("gpu",))), "whether a claim is one for GPUs may change"
    holder = PodView("ml", "monitor", node="n0", holds="runtimeClass nvidia")
    assert keep(holder)
    assert not keep_pods("gpu-operator", holders=False)(holder)
    assert not keep(PodView("web", "shop", node="n0"))


def test_a_daemonset_and_its_revision() -> None:
    ds = daemonset_view(raw(
        metadata={"name": "drv", "namespace": "ns", "uid": "ds-1", "generation": 4, "annotations": {names.APPLIED_HASH: "h"}},
        spec={"selector": {"matchLabels": {"app": "x"}}, "updateStrategy": {"type": "OnDelete"}, "template": {"spec": {
            "nodeSelector": {"gpu": "yes"}, "containers": [{"env": env("5", names.DRIVER_CONFIG_DIGEST)}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}]}}},
        status={"observedGeneration": 3, "desiredNumberScheduled": 2, "numberUnavailable": 1},
    ))
    assert (ds.on_delete, ds.settled, ds.desired, ds.unavailable) == (True, False, 2, 1)
    assert (ds.config_digest, ds.applied_hash, ds.node_selector) == ("5", "h", {"gpu": "yes"})
    assert ds.tolerations == (Toleration("gpu", "Exists"),)
    revision = revision_view(raw(
        metadata={"name": "drv-6f9c", "namespace": "ns", "labels": {names.REVISION_HASH: "6f9c"}, "ownerReferences": [OWNER]},
        revision=3,
    ))
    assert (revision.owner_uid, revision.revision, revision.hash) == ("ds-1", 3, "6f9c")
    bare = revision_view(raw(metadata={"name": "drv-77", "ownerReferences": [OWNER]}, revision=1))
    assert bare.hash == "77", "without the label the hash is what follows the owner's name"


def test_a_daemonset_that_chooses_its_nodes_by_an_affinity_says_so() -> None:
    def tolerations(affinity: dict[str, Any]) -> object:
        template = {"spec": {"containers": [], "affinity": affinity}}
        return daemonset_view(raw(metadata={"name": "drv"}, spec={"template": template})).tolerations

    terms: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    required: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    preferred: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    assert tolerations({"nodeAffinity": required}) is None
    assert tolerations({"nodeAffinity": preferred}) == tolerations({"podAntiAffinity": required}) == ()


def revision_of(template: dict[str, Any]) -> RevisionView:
    return revision_view(raw(metadata={"name": "drv-1", "ownerReferences": [OWNER]}, revision=1,
                             data={"spec": {"template": {"$patch": "replace", **template}}}))


def test_revisions_that_differ_in_labels_and_annotations_alone_run_the_same_pods() -> None:
    spec = {"containers": [{"name": "c", "image": "driver:550", "env": env("5", names.DRIVER_CONFIG_DIGEST)}]}
    one = revision_of({"metadata": {"labels": {"app": "d"}}, "spec": spec})
    swapped = {"containers": [dict(reversed(spec["containers"][0].items()))]}
    restarted = revision_of({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}, "spec": swapped})
    other = revision_of({"spec": {"containers": [{"name": "c", "image": "driver:560"}]}})
    assert one.pod_digest == restarted.pod_digest != other.pod_digest
    elsewhere = revision_of({"spec": {**swapped, "nodeSelector": {"other": "nodes"}}})
    assert one.pod_digest == elsewhere.pod_digest, "which nodes it selects changes nothing about what runs there"
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}
    assert one.pod_digest == revision_of({"spec": {**swapped, "affinity": alone}}).pod_digest, "nor which pods it is beside"
    near = revision_of({"spec": {**swapped, "affinity": {**alone, "nodeAffinity": {"x": [{}]}}}})
    assert near.pod_digest not in (one.pod_digest, "")
    assert one.config_digest == "5"
    assert one.pod_digest != ""
    assert revision_view(raw(metadata={"name": "drv-1"}, revision=1)).pod_digest == ""


def test_only_objects_of_a_cluster_policy_count_as_owned() -> None:
    owner = {**OWNER, "kind": "ClusterPolicy", "uid": "cp"}
    assert owned_view(raw(metadata={"name": "a", "ownerReferences": [owner]}), "ConfigMap").owner_uid == "cp"
    assert owned_view(raw(metadata={"name": "a", "ownerReferences": [OWNER]}), "ConfigMap").owner_uid == ""
    assert owned_view(raw(metadata={"name": "a"}), "ConfigMap").owner_uid == ""


def test_a_policy_keeps_its_whole_body() -> None:
    body = {"metadata": {"name": "cluster-policy", "generation": 2, "creationTimestamp": CREATED}, "spec": {"driver": {}}}
    policy = policy_view(msgspec.json.encode(body))
    assert (policy.name, policy.generation, policy.created, policy.body) == ("cluster-policy", 2, 1767323045.0, body)


@pytest.mark.parametrize("decode", [node_view, pod_view, daemonset_view, revision_view, policy_view])
def test_garbage_is_refused(decode: Any) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(b'{"metadata": 3}')


def test_what_is_equal_about_many_pods_and_nodes_is_there_once() -> None:
    def pod(name: str, app: str = "web") -> PodView:
        owner = {"kind": "DaemonSet", "name": app, "uid": f"uid-{app}", "controller": True}
        meta = {"name": name, "namespace": "work", "labels": {"app": app, "long": "value of a label"}, "ownerReferences": [owner]}
        return pod_view(msgspec.json.encode({"metadata": meta, "spec": {"nodeName": "gpu-1"}}))

    one, other, third = pod("a"), pod("b"), pod("c", "db")
    assert one.labels is other.labels
    assert one.owner is other.owner
    assert one.node is other.node
    assert (third.labels, third.owner) == ({"app": "db", "long": "value of a label"}, Owner("DaemonSet", "db", "uid-db"))
    nodes = [node_view(msgspec.json.encode({"metadata": {"name": name, "labels": {"host": name, "gpu": "NVIDIA-H100-80GB"}}}))
             for name in ("n1", "n2")]
    assert nodes[0].labels["gpu"] is nodes[1].labels["gpu"]
    assert nodes[1].labels["host"] == "n2"


@pytest.mark.parametrize(("container", "opens"), [
    ({"name": "nvidia-dcgm-ctr"}, True),
    ({"name": "nvidia-dcgm-exporter"}, True),
    ({"name": "nvidia-device-plugin"}, True),
    ({"name": "nvidia-device-plugin", "env": [{"name": "DP_DISABLE_HEALTHCHECKS", "value": "31"}]}, True),
    ({"name": "nvidia-device-plugin", "env": [{"name": "DP_DISABLE_HEALTHCHECKS", "value": "all"}]}, False),
    ({"name": "nvidia-device-plugin", "env": [{"name": "DP_DISABLE_HEALTHCHECKS", "value": "31,XIDS"}]}, False),
    ({"name": "gpu-feature-discovery"}, False),
])
def test_which_operands_have_the_driver_open_all_the_time(container: dict[str, Any], opens: bool) -> None:
    template = {"spec": {"containers": [{"name": "config-manager-sidecar"}, container]}}
    raw = {"metadata": {"name": "ds", "namespace": "n"}, "spec": {"template": template}}
    assert daemonset_view(msgspec.json.encode(raw)).opens_driver is opens


@pytest.mark.parametrize(("state", "restarts", "begun"), [
    ({"waiting": {"reason": "PodInitializing"}}, 0, False),
    ({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, 0, True),
    ({"terminated": {"exitCode": 0}}, 0, True),
    ({"waiting": {"reason": "CrashLoopBackOff"}}, 1, True),
])
def test_a_pod_has_begun_once_an_init_container_has_run(state: dict[str, object], restarts: int, begun: bool) -> None:
    statuses = [{"name": "driver-manager", "state": state, "restartCount": restarts}]
    raw = {"metadata": {"name": "driver"}, "status": {"phase": "Pending", "initContainerStatuses": statuses}}
    assert pod_view(msgspec.json.encode(raw)).begun is begun


STAGING = {"name": "p", "namespace": "gpu-operator", "labels": {"app": names.STAGING_APP}}
RUNS: dict[str, Any] = {"running": {}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 128}}


def waits(reason: str) -> dict[str, Any]:
    """Return the state of a container that does not run."""
    return {"waiting": {"reason": reason}}


@pytest.mark.parametrize(("status", "pulls"), [
    ({}, PullProgress()),
    ({"containerStatuses": [{"name": "a", "state": waits("ContainerCreating")}]}, PullProgress()),
    ({"containerStatuses": [{"name": "a"}]}, PullProgress()),
    ({"containerStatuses": [{"name": "a", "state": ENDED}, {"name": "b", "state": waits("ContainerCreating")}]}, PullProgress()),
    ({"containerStatuses": [{"name": "a", "state": ENDED}, {"name": "b", "state": waits("ErrImagePull")}]},
     PullProgress(trouble="container b: ErrImagePull")),
    ({"containerStatuses": [{"name": "a", "state": ENDED}, {"name": "b", "state": RUNS}]}, PullProgress(there=True)),
    ({"containerStatuses": [{"name": "a", "state": waits("CreateContainerConfigError")}]}, PullProgress(there=True)),
    ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "a", "state": ENDED}]},
     PullProgress(trouble="Evicted")),
    ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
     PullProgress(trouble="Unschedulable")),
])
def test_a_pod_that_has_images_pulled_says_how_far_it_is(status: dict[str, Any], pulls: PullProgress) -> None:
    assert pod_view(raw(metadata=STAGING, spec={"nodeName": "gpu-1"}, status=status)).pulls == pulls


def test_a_pod_of_another_app_pulls_for_itself() -> None:
    assert pod_view(raw(metadata={**STAGING, "labels": {"app": "web"}})).pulls is None


def test_a_template_says_which_images_its_pods_need_the_drivers_first() -> None:
    spec = {"initContainers": [{"name": "k8s-driver-manager", "image": "manager:1"}],
            "containers": [{"name": "nvidia-driver-ctr", "image": "driver:2", "imagePullPolicy": "Always"},
                           {"name": "nvidia-peermem-ctr", "image": "driver:2", "imagePullPolicy": "Always"},
                           {"name": "nvidia-gdrcopy-ctr", "image": "gdrdrv:3"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    shape = daemonset_view(raw(metadata={"name": "d", "namespace": "n"}, spec={"template": {"spec": spec}})).shape
    assert [(pull.container, pull.image, pull.policy) for pull in shape.pulls] == [
        ("nvidia-driver-ctr", "driver:2", "Always"), ("nvidia-gdrcopy-ctr", "gdrdrv:3", ""),
        ("k8s-driver-manager", "manager:1", "")]
    assert shape.tolerations == (Toleration("nvidia.com/gpu", "Exists"),)
    spec["containers"].insert(0, {"name": "proxy", "image": "proxy:1"})
    shape = daemonset_view(raw(metadata={"name": "d", "namespace": "n"}, spec={"template": {"spec": spec}})).shape
    assert [pull.image for pull in shape.pulls] == ["driver:2", "proxy:1", "gdrdrv:3", "manager:1"]


def test_a_container_that_a_webhook_puts_first_is_not_taken_for_the_driver() -> None:
    containers = [{"name": "istio-proxy", "image": "mesh/proxy:1.2"}, {"name": "nvidia-driver-ctr", "image": "nvcr/driver:595"}]
    meta = {"name": "a", "uid": "a", "labels": {"app": "nvidia-driver-daemonset", "app.kubernetes.io/component": "nvidia-driver"}}
    assert pod_view(raw(metadata=meta, spec={"containers": containers})).driver_image == "nvcr/driver:595"
    assert daemonset_view(raw(metadata=meta, spec={"template": {"spec": {"containers": containers}}})).image == "nvcr/driver:595"
    assert pod_view(raw(metadata=meta, spec={"containers": containers[:1]})).driver_image == "mesh/proxy:1.2"


@pytest.mark.parametrize(("metadata", "spec", "gang"), [
    ({"labels": {names.JOBSET_NAME: "llm"}}, {}, "JobSet ml/llm"),
    ({"annotations": {"scheduling.k8s.io/group-name": "mpi"}}, {}, "pod group ml/mpi"),
    ({}, {"schedulingGroup": {"podGroupName": "workers"}}, "pod group ml/workers"),
    ({}, {"schedulingGroup": {}}, ""),
])
def test_the_gang_of_a_pod(metadata: dict[str, Any], spec: dict[str, Any], gang: str) -> None:
    assert pod_view(raw(metadata={"name": "p", "namespace": "ml", **metadata}, spec={"containers": [], **spec})).gang == gang
