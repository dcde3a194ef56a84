"""What each field of the custom resources means, in one sentence, for `kubectl explain`.

Most fields mean the same wherever they occur, so sentences are found by field name; `Struct.field` goes first where
one differs. A field that is a struct is described by that struct's docstring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import msgspec

_SENTENCES: Final[dict[str, str]] = {
    # Images and containers.
    "repository": "Registry and path in front of the image name.",
    "image": "Image name; the full reference if repository and version are empty.",
    "version": "Image tag, or a digest that starts with sha256:.",
    "image_pull_policy": "When the kubelet pulls the image: Always, Never or IfNotPresent (default).",
    "image_pull_secrets": "Names of the pull secrets in the operator's namespace.",
    "args": "Arguments of the container.",
    "env": "Environment variables of the container.",
    "EnvVar.name": "Name of the variable.",
    "EnvVar.value": "Value of the variable.",
    "host_network": "Whether the pod uses the host's network.",
    "limits": "Most that the container may use.",
    "requests": "What the scheduler sets aside for the container.",
    "initial_delay_seconds": "Seconds from the start of the container to the first probe.",
    "timeout_seconds": "Seconds after which this gives up; 0 waits for ever.",
    "Probe.timeout_seconds": "Seconds after which a probe counts as failed.",
    "period_seconds": "Seconds between probes.",
    "success_threshold": "Successes in a row that make a failed container healthy again.",
    "failure_threshold": "Failures in a row that make a container unhealthy.",
    # Switches.
    "enabled": "Whether it is wanted.",
    "Gds.enabled": "Whether the nvidia-fs module is loaded beside the driver.",
    "Gdrcopy.enabled": "Whether the gdrdrv module is loaded beside the driver.",
    "use_host_mofed": "Whether the MOFED drivers on the host are used.",
    "Psp.enabled": "Accepted and ignored: Kubernetes has no pod security policies any more.",
    "Psa.enabled": "Whether the operator's namespace is labelled for privileged pods; the labels stay when this is turned off.",
    "KataManager.enabled": "Accepted and ignored: the operand is no longer deployed.",
    # The operator and what all operands share.
    "default_runtime": "Accepted and ignored: the container runtime of each node is detected.",
    "runtime_class": "Name of the RuntimeClass that the operands run with.",
    "use_ocp_driver_toolkit": "Whether the OpenShift Driver Toolkit builds the kernel modules.",
    "labels": "Labels to add.",
    "annotations": "Annotations to add.",
    "tolerations": "Tolerations of the pods, instead of the usual ones.",
    "NVIDIADriverSpec.tolerations": "Tolerations of the driver pods, besides the usual one.",
    "priority_class_name": "PriorityClass of the pods.",
    "update_strategy": "How the operand DaemonSets replace their pods.",
    "RollingUpdate.max_unavailable": "Pods of a DaemonSet that may be down at once: a number or a percentage.",
    "pod_security_context": "Security context of the pods.",
    "root_fs": "Root directory of the host.",
    "driver_install_dir": "Directory on the host with the driver container's root.",
    "kubelet_root_dir": "Directory of the kubelet.",
    "Cdi.enabled": "Whether devices are handed to containers through the Container Device Interface.",
    "Cdi.default": "Accepted and ignored: CDI is the default wherever it is enabled.",
    "nri_plugin_enabled": "Whether an NRI plugin injects the devices of the operands; needs CDI.",
    # The driver.
    "use_nvidia_driver_crd": "Whether NVIDIADriver resources manage the drivers instead of this section.",
    "use_precompiled": "Whether driver containers with precompiled kernel modules are used.",
    "use_open_kernel_modules": "Accepted and ignored: use kernelModuleType.",
    "kernel_module_type": "Flavour of the kernel modules; auto lets the driver container choose.",
    "secret_env": "Name of a Secret whose keys become environment variables of the driver container.",
    "config_map_name": "Name of the ConfigMap in the operator's namespace.",
    "LicensingConfig.config_map_name": "Deprecated: name of a ConfigMap with the licence; use secretName.",
    "NVIDIADriverLicensing.name": "Deprecated: name of a ConfigMap with the licence; use secretName.",
    "secret_name": "Name of the Secret with the licence.",
    "nls_enabled": "Whether the NVIDIA Licence System is used.",
    "VirtualTopology.config": "Name of the ConfigMap with nvidia-topologyd.conf.",
    # The driver upgrade.
    "auto_upgrade": "Whether nodes are upgraded without being asked one by one.",
    "max_parallel_upgrades": "Nodes that may be upgraded at once; 0 is no limit.",
    "DriverUpgradePolicy.max_unavailable": "Nodes that may be unavailable at once: a number or a percentage.",
    "pod_selector": "Label selector of the pods that this is about.",
    "force": "Whether pods without a controller are evicted too.",
    "delete_empty_dir": "Whether pods with emptyDir volumes are evicted too; their data is lost.",
    "Drain.enable": "Whether a node is drained if evicting its GPU pods was not enough.",
    # The other operands.
    "install_dir": "Directory on the host for the toolkit.",
    "DevicePluginConfig.name": "Name of the ConfigMap with device plugin configurations.",
    "DevicePluginConfig.default": "Key of the ConfigMap for nodes that do not name one.",
    "Mps.root": "Directory on the host for the state of MPS.",
    "host_port": "Accepted and ignored: the host engine is reached through its Service.",
    "host_pid": "Whether the pod shares the host's process namespace.",
    "HpcJobMapping.directory": "Directory on the host with the job mapping files.",
    "DcgmExporterService.type": "Type of the Service.",
    "internal_traffic_policy": "Whether the Service routes to pods of the same node only (Local) or of all (Cluster).",
    "enable_pod_labels": "Whether metrics carry the labels of the pod that uses the GPU.",
    "enable_pod_uid": "Whether metrics carry the uid of the pod that uses the GPU.",
    "pod_label_allowlist_regex": "Patterns of the pod labels to add; all if empty.",
    "interval": "Time between two scrapes.",
    "scrape_timeout": "Time after which a scrape gives up.",
    "honor_labels": "Whether labels of the metric win over those of the scrape.",
    "additional_labels": "Labels to add to the ServiceMonitor.",
    "relabelings": "Relabelings before the scrape.",
    "strategy": "How MIG devices are named: none, single or mixed.",
    "ConfigMapName.name": "Name of the ConfigMap in the operator's namespace.",
    "MigConfig.name": "Name of the ConfigMap with MIG layouts; empty for the built-in one.",
    "MigConfig.default": "Layout of nodes that do not name one.",
    # Virtual machines, confidential and Kata containers.
    "default_workload": "Kind of workload of nodes that do not name one.",
    "mode": "Whether virtual machines are run by KubeVirt or by Kata.",
    "VgpuDevicesConfig.name": "Name of the ConfigMap with vGPU layouts; empty for the built-in one.",
    "VgpuDevicesConfig.default": "Layout of nodes that do not name one.",
    "default_mode": "Confidential computing mode of nodes that do not name one.",
    "artifacts_dir": "Directory on the host for the runtimes' files.",
    "runtime_classes": "Kata runtimes to install.",
    "url": "Reference of the OCI artifact.",
    "pull_secret": "Name of the pull secret.",
    "node_selector": "Labels of the nodes that this is for.",
    "KataRuntimeClass.name": "Name of the RuntimeClass.",
    # NVIDIADriver.
    "NVIDIADriverSpec.default": "Whether this driver is for the GPU nodes that no other NVIDIADriver selects.",
    "driver_type": "Driver for containers (gpu), for vGPU guests (vgpu) or for vGPU hosts; cannot be changed.",
    "node_affinity": "Accepted and ignored: use nodeSelector.",
    # RolloutPolicy.
    "RolloutFailureBudget.nodes": "Nodes that may fail in a rollout before it pauses.",
    "RolloutFailureBudget.percent": "The same as a percentage of the managed nodes, rounded down; the larger one counts.",
    "deadlines": "How long a node may stay in a state before its upgrade fails, by state, such as 30m; 0s is for ever. Without "
                 "an entry pod-restart-required has 30m and validation-required 10m; a timeout in NVIDIA's policy goes first.",
    "retries": "How often a node that failed is tried again by itself.",
    "retry_backoff": "Time until a failed node is tried again; it doubles with each attempt.",
    "discovery_grace": "How long a node may lack the labels of node feature discovery before its operands are taken away.",
    "device_holders": "What happens to pods that hold the driver without asking for a GPU: the node is held until they are "
                      "gone (Hold), they are evicted (Evict) or left alone (Ignore).",
    "kill_at_deadline": "Whether pods that are still there at the end of an eviction's timeout are deleted. A longer grace "
                        "period than 5 minutes, or than that timeout, is shortened.",
    "remove_at_once": "Whether drivers that are to go, as they are switched off, their NVIDIADriver is deleted or "
    "nvidia.com/gpu.deploy.operands=false is set, are taken from "
                      "all their nodes at once, whatever uses them; otherwise node by node, like an upgrade.",
    "domains": "Which nodes break together, such as those of an NVLink domain, a rack or a zone, and how many of them may be out "
               "of service at once, whatever took them out. NVIDIA's limits hold besides.",
    "RolloutDomains.key": "Label by whose value nodes are in a domain, such as nvidia.com/gpu.clique or "
                          "topology.kubernetes.io/zone. A node without it is a domain of its own.",
    "RolloutDomains.mode": "Spread: at most max nodes of one domain are out of service at once. Whole: at most max domains have "
                           "nodes out of service at once, and one that was begun is finished before another starts.",
    "RolloutDomains.max": "Nodes of one domain (Spread), or domains (Whole).",
    "gangs": "What is done about distributed runs with pods on several nodes, each of which costs the work of all when it is "
    "evicted. Without it each node starts by itself.",
    "RolloutGangs.mode": "Together: the nodes of a gang start together, where the limits have room for all of them. Ignore: each "
    "node starts by itself.",
    "RolloutGangs.until": "For how long a node waits to which a gang came after it had to leave another one, so that it is not "
    "evicted again: from when that started. 0s for no time.",
    "opportunistic": "Let a node start once no GPU pod has used it for a while, and evict nobody for some time.",
    "RolloutOpportunities.idle_for": "How long no GPU pod must have used a node before it starts, such as 15m.",
    "RolloutOpportunities.until": "How long a node waits for that, from when it is found to need another driver, such as 72h. "
                                  "Afterwards it is upgraded like any other, and its pods are evicted.",
    "RolloutPolicySpec.notice": "Give notice before pods are evicted from a node, so that they can save what they have.",
    "RolloutNotice.before": "How long before that, from 1s to 168h, such as 15m. The node goes on earlier once all its pods have "
                            "acknowledged the notice.",
    "RolloutNotice.acknowledge": "Optional: the node goes on when the time is up, whoever has acknowledged. Required: only once "
                                 "all its pods have; others go on meanwhile.",
    "undrainable": "What becomes of a node whose pods cannot be moved: a disruption budget never lets them go, they come back, "
                   "do not end or do not complete. Without it the node waits until its steps time out.",
    "RolloutUndrainable.behaviour": "Hold: it waits until its step times out. Skip: it goes back into service with its driver, "
                                    "until nothing has to leave it, it is to have another driver or somebody has it tried again. "
                                    "Quarantine: it stays cordoned with its driver and uses no slot. Fail: its upgrade fails.",
    "RolloutUndrainable.after": "How long a node may wait for its pods in one step before that. What would fail as a timeout of "
                                "the upgradePolicy ends sooner is skipped or quarantined then.",
    "RolloutUndrainable.max_quarantined": "Nodes that may be quarantined at once, beside those that maxParallelUpgrades and "
                                          "maxUnavailable allow; any more wait as with Hold.",
    "window_fit": "Whether nodes start in any window that is open, or (P90) only while it stays open for as long as nine of ten "
                  "upgrades take, as the nodes remember them. Off: any.",
    "finish_by": "When a rollout should be done: a date, or a time with or without its distance from UTC. What people read of "
                 "how long it still takes says whether it will be, and how many nodes at once would do. It lets no node start.",
    "windows": "When nodes may start: while a window of kind Allow is open, if there is one, and none of kind Deny. Nodes under "
               "way finish. Without windows nodes may always start.",
    "prestage": "Whether the images of the next driver are brought onto a node before it is taken out of service for it.",
    "RolloutPrestage.mode": "\"Off\", which needs quotes in YAML: each node pulls the images while it is out of service. "
                            "Image: a pod of gpuward's, which does nothing, has them pulled before.",
    "RolloutPrestage.parallel": "On how many nodes images are pulled at once, in the order in which nodes are upgraded.",
    "on_failure": "What becomes of a node onto which they cannot be brought. Hold: it keeps its driver, and others go on. "
                  "Ignore: it is upgraded without.",
    "interop": "Which other controllers are told, by labels, annotations and conditions, that a node is out of service for an "
               "upgrade. What somebody else has written there stays.",
    "nvsentinel": "Whether NVSentinel is to leave a node alone, by nvsentinel.dgxc.nvidia.com/managed=false, while it is out of "
                  "service.",
    "slurm": "Whether Slurm's operator is given the reason of the cordon, which it shows as that of its drain.",
    "node_conditions": "Whether nodes have Kubernetes' conditions of KEP-5683 while they are upgraded: MaintenancePlanned with a "
                       "notice, then DrainInProgress, Drained and MaintenanceInProgress.",
    "node_maintenance": "Request: a node is emptied once NVIDIA's maintenance operator has its NodeMaintenance ready, which goes "
                        "when the node is back in service or has failed. \"Off\", which needs quotes in YAML: nobody is asked.",
    "RolloutWindow.kind": "Whether nodes may start while it is open (Allow), or may not (Deny), which goes first.",
    "schedule": "When it opens, in the five fields of cron: minute, hour, day of month, month, day of week.",
    "duration": "How long it stays open each time, such as 6h.",
    "RolloutWindow.start": "When it opens, once: 2026-12-24, 2026-12-24T18:00 in its timeZone, or 2026-12-24T17:00Z.",
    "RolloutWindow.end": "When it ends.",
    "time_zone": "Time zone of the schedule, and of times without one, such as Europe/Berlin.",
    "waves": "Which nodes go before others, each wave after the one before it; the last one has all other nodes. A node is in "
             "the first wave whose nodeSelector it matches and that has room. Without waves all nodes are in one.",
    "RolloutWave.name": "Name of the wave, for people.",
    "RolloutWave.node_selector": "Labels that its nodes have; any node without it.",
    "RolloutWave.nodes": "How many of those nodes it takes: a number, or a percentage, which is rounded down to one node at "
                         "least; all of them without it.",
    "RolloutWave.max_unavailable": "How many nodes of the wave may be out of service at once: a number, or a percentage, which "
                                   "is rounded down to one node at least. The limits of the upgradePolicy hold as well.",
    "soak": "How long the next wave waits after the last node of this one is done.",
    "approval": "Whether the next wave waits until somebody approves with gpuward approve.",
    "RolloutWave.failure_budget": "Hold later waves when more nodes of this one have failed than the larger of the two allows.",
    "WaveFailureBudget.nodes": "Nodes of the wave that may fail.",
    "WaveFailureBudget.percent": "Percentage of the wave's nodes that may fail, rounded down.",
    "RolloutWave.windows": "When nodes of the wave may start. Windows of kind Allow here stand in place of the RolloutPolicy's; "
                           "those of kind Deny hold beside them, here and there.",
    "RolloutWave.analysis": "What has to be seen of the wave before later ones start, measured once its nodes are back.",
    "WaveCheck.name": "Name of the check, for people.",
    "WaveCheck.node_conditions": "Conditions that no node of the wave may have, such as those of node-problem-detector.",
    "WaveCheck.interval": "Time between two measurements, from 10s to 1h.",
    "WaveCheck.for_": "For how long each measurement has to pass, up to 24h; a new operator begins anew with it.",
    "WaveCheck.failures": "After how many failed measurements the check has failed, and the rollout stops until somebody looks.",
    "WaveCheck.on_no_data": "What a measurement without a result does: later waves wait.",
    "AnalysisCondition.type": "Type of the condition, such as GpuNvlinkWatch.",
    "AnalysisCondition.status": "Status that fails.",
    "AnalysisPromql.server": "Where it is, http or https, such as http://prometheus.monitoring.svc:9090.",
    "query": "Instant query. {{nodes}} in it stands for the nodes of the wave, as a regular expression: Hostname=~\"{{nodes}}\".",
    "fail_when": "Comparison with a number, such as > 0: one sample of which it is true fails.",
    "secret_ref": "Secret with a bearer token (token), and authorities that are trusted besides the system's (ca.crt).",
    "AnalysisSecret.name": "Name of the Secret in the operator's namespace.",
    "RolloutGrowth.start": "Nodes that may be under way at once at first.",
    "factor": "How many times as many may be with every set of nodes that is done, within the limits of the upgradePolicy.",
    "RolloutPolicyStatus.state": "Whether this policy is in force, ignored beside an older one, or cannot be followed.",
    # Status.
    "state": "Whether what is asked for is in place.",
    "namespace": "Namespace of the operator.",
    "conditions": "Details on the state.",
    "Condition.type": "Aspect that the condition is about.",
    "Condition.status": "Whether the condition holds.",
    "reason": "Cause in one word.",
    "message": "Cause in a sentence.",
    "last_transition_time": "When the status of the condition last changed.",
    "observed_generation": "Generation of the object that the condition is about.",
}


def describe(struct: type[msgspec.Struct], field: str) -> str | None:
    """Return the sentence for a struct's field, or None where the field's own type describes it."""
    for owner in struct.__mro__:
        if sentence := _SENTENCES.get(f"{owner.__name__}.{field}"):
            return sentence
    return _SENTENCES.get(field)
