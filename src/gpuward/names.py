"""Every name that gpuward shares with a cluster: API groups, labels, annotations, event reasons, each once.

The `nvidia.com/...` names are NVIDIA's contract; the `gpuward.io/...` names are ours.
"""

from __future__ import annotations

from typing import Final

# API groups and versions.
NVIDIA_GROUP: Final = "nvidia.com"
CLUSTER_POLICY_VERSION: Final = "v1"
NVIDIA_DRIVER_VERSION: Final = "v1alpha1"
GPUWARD_GROUP: Final = "gpuward.io"
ROLLOUT_POLICY_VERSION: Final = "v1alpha1"

DEFAULT_NAMESPACE: Final = "gpu-operator"
OPERATOR_NAME: Final = "gpu-operator"
LEADER_LEASE: Final = "53822513.nvidia.com"
EVENT_SOURCE: Final = "nvidia-gpu-operator"
FIELD_MANAGER: Final = "gpuward"
DRIVER_EVENT_REASON: Final = "GPUDriverUpgrade"
ROLLOUT_EVENT_PREFIX: Final = "GPUDriverUpgrade"
"""Events on a ClusterPolicy have this before the reason of its condition `DriverUpgrade`."""
HELD_EVENT_REASON: Final = "GPUDriverUpgradeHeld"

# Node labels that node feature discovery writes and gpuward reads.
NFD_PREFIX: Final = "feature.node.kubernetes.io/"
NFD_GPU_LABELS: Final = (
    NFD_PREFIX + "pci-10de.present",
    NFD_PREFIX + "pci-0302_10de.present",
    NFD_PREFIX + "pci-0300_10de.present",
)
POD_SECURITY: Final = "pod-security.kubernetes.io/"
"""What the labels of a namespace begin with that say which pods may come there."""
NFD_KERNEL: Final = NFD_PREFIX + "kernel-version.full"
NFD_OS_ID: Final = NFD_PREFIX + "system-os_release.ID"
NFD_OS_VERSION: Final = NFD_PREFIX + "system-os_release.VERSION_ID"


# Node labels of the GPU operator.
GPU_PRESENT: Final = "nvidia.com/gpu.present"
DEPLOY_PREFIX: Final = "nvidia.com/gpu.deploy."
OWN_PREFIX: Final = "gpuward.io/"
"""Of gpuward's own labels and annotations."""
DEPLOY_OPERANDS: Final = DEPLOY_PREFIX + "operands"
DEPLOY_DRIVER: Final = DEPLOY_PREFIX + "driver"
PRE_INSTALLED: Final = "pre-installed"
"""The value of that label on a node whose host has a driver of its own."""
DEPLOY_TOOLKIT: Final = DEPLOY_PREFIX + "container-toolkit"
DEPLOY_VFIO_MANAGER: Final = DEPLOY_PREFIX + "vfio-manager"
DEPLOY_VGPU_MANAGER: Final = DEPLOY_PREFIX + "vgpu-manager"
DEPLOY_VALIDATOR: Final = DEPLOY_PREFIX + "operator-validator"
DEPLOY_PLUGIN: Final = DEPLOY_PREFIX + "device-plugin"
DEPLOY_MIG_MANAGER: Final = DEPLOY_PREFIX + "mig-manager"
WORKLOAD_CONFIG: Final = "nvidia.com/gpu.workload.config"
MIG_CAPABLE: Final = "nvidia.com/mig.capable"
MIG_CONFIG: Final = "nvidia.com/mig.config"
MIG_STATE: Final = "nvidia.com/mig.config.state"
MPS_CAPABLE: Final = "nvidia.com/mps.capable"
DEVICE_PLUGIN_CONFIG: Final = "nvidia.com/device-plugin.config"
GPU_COUNT: Final = "nvidia.com/gpu.count"
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
GFD_PREFIXES: Final = ("nvidia.com/gpu.", "nvidia.com/mig.", "nvidia.com/mig-", "nvidia.com/mps.", "nvidia.com/vgpu.")
"""GPU feature discovery's labels begin so; it takes them away while it does not run, as while a driver is replaced."""
DRIVER_VERSION_PREFIX: Final = "nvidia.com/cuda."
"""Its labels that tell which driver is loaded, and which CUDA that brings."""
DRIVER_VERSION: Final = "nvidia.com/cuda.driver-version.full"
VGPU_HOST_DRIVER: Final = "nvidia.com/vgpu.host-driver-version"
DRIVER_OWNER: Final = "nvidia.com/gpu-operator.driver.owner"

# Which driver a node was given: driver DaemonSets select on these, as discovery may take its own labels away at any time.
DRIVER_OS: Final = "gpuward.io/driver-os"
"""On a node, and on precompiled driver pods: the operating system that its driver is for, such as ubuntu22.04 or rhel9. As an
annotation of a DaemonSet: that which it was made for."""
DRIVER_RUNTIME: Final = "gpuward.io/driver-runtime"
"""An annotation of a driver's DaemonSet: the container runtime for which its mounts were chosen."""
DRIVER_KERNEL: Final = "gpuward.io/driver-kernel"
"""On a node, and on precompiled driver pods: the kernel that its precompiled driver is for."""
PLACED_BY: Final = frozenset({DRIVER_OWNER, DRIVER_OS, DRIVER_KERNEL})
"""The labels of a node that say where its driver comes from."""

# The driver upgrade: labels and annotations of nodes and pods.
UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
UPGRADE_SKIP: Final = "nvidia.com/gpu-driver-upgrade.skip"
DRAIN_SKIP: Final = "nvidia.com/gpu-driver-upgrade-drain.skip"
UPGRADE_ENABLED: Final = "nvidia.com/gpu-driver-upgrade-enabled"
UPGRADE_REQUESTED: Final = "nvidia.com/gpu-driver-upgrade-requested"
SAFE_LOAD: Final = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load"
INITIALLY_UNSCHEDULABLE: Final = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
WAIT_FOR_JOBS_SINCE: Final = "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time"
VALIDATION_SINCE: Final = "nvidia.com/gpu-driver-upgrade-validation-start-time"
UPGRADE_RECORD: Final = "gpuward.io/driver-upgrade"
"""Our memory of a node's upgrade: a JSON document, see `gpuward.model.record`."""
UPGRADE_HISTORY: Final = "gpuward.io/upgrade-history"
"""On a node: its last upgrades, how long each step took and what it cost, as JSON, see `gpuward.model.history`."""
DISCOVERY_LOST: Final = "gpuward.io/discovery-lost-since"
"""On a node: since when (RFC 3339) discovery says that its GPUs are gone, while its operands stay for a while."""
DRIVER_MANAGER_CORDON: Final = "gpuward.io/driver-manager-cordon"
"""Annotation of a node that gpuward's driver manager has cordoned: only that cordon does it take off again. Whoever sees it on
a node that is schedulable takes it away."""
NVIDIAS_DRIVER_MANAGER: Final = "driver-manager"
"""Who owns, by managedFields, a cordon of the driver manager in NVIDIA's image: client-go names a program so."""
DRIVER_MANAGER_PAUSE: Final = "gpuward.io/driver-manager-pause"
"""Annotation of a node whose labels of operands gpuward's driver manager has paused: what others pause is theirs to give back.
It names labels of people's own that are paused, too, or says `true`."""
NVSENTINEL_OPTED_OUT: Final = "gpuward.io/nvsentinel-opted-out"
"""Annotation of a node whose labels for NVSentinel are ours, see `gpuward.model.marks`."""
NODE_MAINTENANCE: Final = "gpuward.io/node-maintenance"
"""Annotation of a node whose maintenance a maintenance operator is asked for, see `gpuward.model.maintenance`."""
MAINTENANCE_GROUP: Final = "maintenance.nvidia.com"
ADMISSIONS: Final = "gpuward.io/admissions"
"""On the election's Lease: the nodes that its holder is about to start, as JSON, see `gpuward.upgrade.ledger`."""
RESUMED_AT: Final = "gpuward.io/resumed-at"
"""On a ClusterPolicy or NVIDIADriver: failures up to this time (RFC 3339) no longer pause its rollout."""
PAUSED_AT: Final = "gpuward.io/paused-at"
"""On a ClusterPolicy or NVIDIADriver: since when (RFC 3339) `gpuward pause`, and nobody else, has turned its upgrades off."""
APPROVED: Final = "gpuward.io/approved"
"""On a ClusterPolicy or NVIDIADriver: who approved of its waves that are done, when, and for which drivers, as JSON."""
PROMOTED: Final = "gpuward.io/promoted"
"""The same of who let the next wave go, and without waiting for which nodes."""
ABORTED: Final = "gpuward.io/aborted"
"""The same of who aborted the rollout."""
ANALYSIS: Final = "gpuward.io/analysis"
"""On a ClusterPolicy or NVIDIADriver: what the analyses of its waves came to, and for which drivers, as JSON."""
BEGUN_WAVES: Final = "gpuward.io/begun-waves"
"""The same of which waves have begun and are not over, see `gpuward.model.begun_waves`."""
APPROVED_PLAN: Final = "gpuward.io/approved-plan"
"""On a ClusterPolicy or NVIDIADriver: the plan that its rollout has to keep to, as JSON, see `gpuward.model.approved_plan`."""
NOTICE: Final = "gpuward.io/notice"
"""On a node: that pods are going to be evicted from it, and from when on, as JSON, see `gpuward.model.notice`."""
ACKNOWLEDGED: Final = "gpuward.io/acknowledged-notice"
"""On a pod: the id of the notice that its owner has done with."""
STAGED: Final = "gpuward.io/staged-images"
"""On a node: whether the images of its next driver are on it, as JSON, see `gpuward.model.staging`."""
STAGING_APP: Final = "gpuward-prestage"
"""The label `app` of the pods that have these images pulled."""
STAGING_IMAGES: Final = "gpuward.io/staged-images"
"""On such a pod: a digest of the images."""
VALID_UPGRADE_POLICY: Final = "gpuward.io/valid-upgrade-policy"
"""On a ClusterPolicy or NVIDIADriver: the last settings that could be followed, as JSON, see `gpuward.policy.kept`."""
DRIVERS_GO: Final = "gpuward.io/drivers-go"
"""On a DaemonSet whose NVIDIADriver was deleted with its drivers: `true`, see `gpuward.model.departed`."""
VALID_SPEC: Final = "gpuward.io/valid-spec"
"""On a ClusterPolicy or NVIDIADriver: the last spec that could be followed, as JSON, see `gpuward.policy.lastvalid`."""
VALID_ROLLOUT_POLICY: Final = "gpuward.io/valid-rollout-policy"
"""On a ClusterPolicy: the last RolloutPolicy that could be followed, as JSON, see `gpuward.policy.lastrollout`."""

# Objects that gpuward owns.
OWNER_KINDS: Final = ("ClusterPolicy", "NVIDIADriver")
"""Kinds of custom resources that own objects."""
APPLIED_HASH: Final = "nvidia.com/last-applied-hash"
DRIVER_APP: Final = "nvidia-driver-daemonset"
DRIVER_CONTAINER: Final = "nvidia-driver-ctr"
DRIVER_CONTAINERS: Final = (DRIVER_CONTAINER, "nvidia-vgpu-manager-ctr")
SUBSCRIPTION: Final = "/etc/pki/entitlement"
"""Where a host with RHEL has its subscription."""
VFIO_MANAGER_APP: Final = "nvidia-vfio-manager"
CC_MANAGER_APP: Final = "nvidia-cc-manager"
VGPU_DEVICE_MANAGER_APP: Final = "nvidia-vgpu-device-manager"
VGPU_MANAGER_APP: Final = "nvidia-vgpu-manager-daemonset"
NVIDIA_DRIVER_APP_PREFIXES: Final = ("nvidia-gpu-driver-", "nvidia-vgpu-driver-")
"""What the label `app` of an NVIDIADriver's DaemonSets and pods begins with."""
LEFT_DRIVER_APP: Final = "nvidia-driver-left"
"""On driver pods that must not be adopted by a DaemonSet that selects the pods of others: their label `app` from then on."""
VALIDATOR_APP: Final = "nvidia-operator-validator"
SANDBOX_VALIDATOR_APP: Final = "nvidia-sandbox-validator"
DRIVER_COMPONENT: Final = "nvidia-driver"
VGPU_HOST_COMPONENT: Final = "nvidia-vgpu-host-manager"
VGPU_HOST_APP_PREFIX: Final = "nvidia-vgpu-host-manager-driver-"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
PART_OF_LABEL: Final = "app.kubernetes.io/part-of"
PRECOMPILED: Final = "nvidia.com/precompiled"
PRECOMPILED_KERNEL: Final = "nvidia.com/precompiled.kernel-version"
NODE_OS: Final = "nvidia.com/node.os-version"
OPERATOR_STATE: Final = "nvidia.com/gpu-operator.state"
POD_TEMPLATE_HASH: Final = "pod-template-hash"
CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
GPU_TAINT: Final = "nvidia.com/gpu"
REVISION_HASH: Final = "controller-revision-hash"
TEMPLATE_GENERATION: Final = "pod-template-generation"
"""On a pod: how often the template of its DaemonSet had been changed when the pod was made, and one."""
TEMPLATE_GENERATION_NOW: Final = "deprecated.daemonset.template.generation"
"""On a DaemonSet, kept by the API server: the same number of its template as it is."""
DRIVER_CONFIG_DIGEST: Final = "DRIVER_CONFIG_DIGEST"

# Extended resources that make a pod a GPU user.
DEVICE_PREFIX: Final = "nvidia.com/"
GPU_RESOURCE_PREFIXES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")
NETWORK_RESOURCE_PREFIX: Final = "nvidia.com/hostdev"
"""Network cards, in the examples of NVIDIA's network operator."""
DRA_DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's driver of dynamic resource allocation: what it allocates are GPUs."""

# What gives a container the driver though it asks for no GPU.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES: Final = ("", "none", "void")
"""Values of it that give a container no GPU. (`none` gives it the driver's libraries, which hold nothing.)"""
TOOLKIT_APP: Final = "nvidia-container-toolkit-daemonset"
SET_AS_DEFAULT: Final = ("NVIDIA_RUNTIME_SET_AS_DEFAULT", "CONTAINERD_SET_AS_DEFAULT", "DOCKER_SET_AS_DEFAULT")
DEVICE_PLUGIN: Final = "nvidia-device-plugin"
DEVICE_PLUGIN_APP: Final = "nvidia-device-plugin-daemonset"
MIG_MANAGER_APP: Final = "nvidia-mig-manager"
MPS_DAEMON_APP: Final = "nvidia-device-plugin-mps-control-daemon"
OFFER_GPUS: Final = frozenset({DEVICE_PLUGIN_APP, "nvidia-dra-driver-kubelet-plugin", "nvidia-sandbox-device-plugin-daemonset",
                               "nvidia-kata-sandbox-device-plugin-daemonset"})
"""Apps whose pods tell the kubelet of the GPUs that pods may be given."""
OFFERED_BY: Final = (DEPLOY_PLUGIN, DEPLOY_PREFIX + "sandbox-device-plugin", DEPLOY_PREFIX + "kata-sandbox-device-plugin")
"""The labels of a node by which such pods of ours come."""
DRIVER_CLIENTS: Final = ("nvidia-dcgm-exporter", "nvidia-dcgm-ctr")
"""Containers, beside the device plugin, that keep the driver open while they run."""
NO_HEALTH_CHECKS: Final = "DP_DISABLE_HEALTHCHECKS"
"""The device plugin's variable: with `all` or `xids` it has the driver open only for a moment."""
"""The toolkit's variables for whether NVIDIA's runtime becomes a node's default one, which alone heeds VISIBLE_DEVICES of any
container. The first that is there counts; without one it becomes that."""
DRIVER_ROOT: Final = "/run/nvidia/driver"
MIRROR_POD: Final = "kubernetes.io/config.mirror"

# By what a pod says with which others it is one piece of work: labels, and annotations for Volcano. An indexed Job has both.
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_SET_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
TRAINING_JOB_NAME: Final = "training.kubeflow.org/job-name"
KUEUE_POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_POD_GROUPS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
JOB_NAME: Final = "batch.kubernetes.io/job-name"
JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
COMPUTE_DOMAIN_DRIVER: Final = "compute-domain.nvidia.com"
"""NVIDIA's other driver of dynamic resource allocation: claims of its channels name a ComputeDomain by its uid."""
