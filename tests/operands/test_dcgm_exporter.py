"""The DCGM exporter: what it may read, and how it is scraped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operands.build import container, env, facts, objects, pod, states

NAME = "nvidia-dcgm-exporter"
READ_PODS = {f"{kind}/nvidia-dcgm-exporter-read-pods" for kind in ("ClusterRole", "ClusterRoleBinding")}


def exporter(spec: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return objects([states({"dcgmExporter": spec}, facts(**cluster))["state-dcgm-exporter"]])


@pytest.mark.parametrize(("spec", "reads_pods", "reaches_api"), [
    ({}, False, False),
    ({"enablePodLabels": True}, True, True),
    ({"enablePodUID": True}, True, True),
    ({"env": [{"name": "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "value": "True"}]}, True, True),
    ({"env": [{"name": "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "value": "1"}]}, False, False),
    ({"env": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": "ns:metrics"}]}, False, True),
    ({"env": [{"name": "DCGM_EXPORTER_CONFIGMAP_DATA", "value": "none"}]}, False, False),
])
def test_rights_follow_the_metrics(spec: dict[str, Any], reads_pods: bool, reaches_api: bool) -> None:
    made = exporter(spec)
    assert (set(made) >= READ_PODS) == reads_pods
    assert pod(NAME, {"dcgmExporter": spec})["automountServiceAccountToken"] == reaches_api


def test_pod_metadata_variables() -> None:
    spec = {"dcgmExporter": {"enablePodLabels": True, "enablePodUID": True, "podLabelAllowlistRegex": ["^app$", "team"]}}
    values = env(container(pod(NAME, spec), NAME))
    assert values["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"] == values["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"] == "true"
    assert values["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"] == "^app$,team"


@pytest.mark.parametrize(("mapping", "directory"), [
    ({"enabled": True}, "/var/lib/dcgm-exporter/job-mapping"),
    ({"enabled": True, "directory": "/jobs"}, "/jobs"),
    ({"enabled": False, "directory": "/jobs"}, None),
])
def test_job_mapping(mapping: dict[str, Any], directory: str | None) -> None:
    rendered = pod(NAME, {"dcgmExporter": {"hpcJobMapping": mapping}})
    paths = [v["hostPath"]["path"] for v in rendered["volumes"] if v["name"] == "hpc-job-mapping"]
    assert paths == ([directory] if directory else [])
    assert env(container(rendered, NAME)).get("DCGM_HPC_JOB_MAPPING_DIR") == directory


@pytest.mark.parametrize(("dcgm", "expected"), [(True, "nvidia-dcgm:5555"), (False, None)])
def test_host_engine(dcgm: bool, expected: str | None) -> None:
    assert env(container(pod(NAME, {"dcgm": {"enabled": dcgm}}), NAME)).get("DCGM_REMOTE_HOSTENGINE_INFO") == expected


def test_service_type_and_policy_are_the_policys() -> None:
    plain = exporter({"service": None})[f"Service/{NAME}"]["spec"]
    assert not {"type", "internalTrafficPolicy"} & set(plain)
    spec = exporter({"service": {"type": "NodePort", "internalTrafficPolicy": "Local"}})[f"Service/{NAME}"]["spec"]
    assert (spec["type"], spec["internalTrafficPolicy"]) == ("NodePort", "Local")


def test_service_monitor_has_the_policys_edits() -> None:
    relabeling = {"action": "labeldrop", "regex": "pod"}
    monitor = exporter({"serviceMonitor": {
        "enabled": True, "interval": "30s", "scrapeTimeout": "9s", "honorLabels": True,
        "additionalLabels": {"release": "prometheus"}, "relabelings": [relabeling],
    }}, has_service_monitor_crd=True)[f"ServiceMonitor/{NAME}"]
    assert monitor["metadata"]["labels"] == {"app": NAME, "release": "prometheus"}
    assert monitor["spec"] == {
        "endpoints": [{"path": "/metrics", "port": "gpu-metrics", "interval": "30s", "scrapeTimeout": "9s", "honorLabels": True,
                       "relabelings": [relabeling]}],
        "jobLabel": "app",
        "namespaceSelector": {"matchNames": ["gpu-operator"]},
        "selector": {"matchLabels": {"app": NAME}},
    }


def test_service_monitor_of_the_operator_cannot_be_turned_off() -> None:
    metrics = {"metrics": {"serviceMonitor": {"enabled": False, "interval": "1m"}}}
    rendered = states({"operator": metrics}, facts(has_service_monitor_crd=True))["state-operator-metrics"]
    monitor = objects([rendered])["ServiceMonitor/gpu-operator"]
    assert monitor["spec"]["endpoints"] == [{"path": "/metrics", "port": "gpu-operator-metrics", "interval": "1m"}]
