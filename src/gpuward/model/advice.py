"""What each reason means, whether somebody has to act, and what to do: for `gpuward reasons` and the pages of docs/reasons/."""

from __future__ import annotations

from typing import Final

from gpuward.model.acts import Act, Advice
from gpuward.model.advice_on_origins import ON_ORIGINS
from gpuward.model.reasons import Reason

ADVICE: Final[dict[Reason, Advice]] = {
    **ON_ORIGINS,
    Reason.SKIPPED: Advice(
        Act.WISH, "Somebody labelled the node so that its driver is left alone. It keeps the driver that it has and does not "
        "count as pending.",
        "`gpuward skip --undo NODE` lets it take part again."),
    Reason.PAUSED: Advice(
        Act.WISH, "Automatic upgrades are off. No node starts and no pod is evicted; the clocks of nodes under way stand still, "
        "but for that of a validation.",
        "`gpuward resume` ends a `gpuward pause`. Where the field was set by hand or by a repository, set `autoUpgrade: true` "
        "there. The sentence names the object. With `sandboxWorkloads.enabled` they are off whatever the field says, as with "
        "NVIDIA's operator: delete the driver pods by hand, once nothing uses their GPUs."),
    Reason.NO_POLICY: Advice(
        Act.ROLLOUT, "No ClusterPolicy is in force, and the validators went with it: no upgrade could be brought to an end.",
        "Apply the ClusterPolicy again; the rollout goes on from where it is. If the removal was meant, nothing has to be done."),
    Reason.INVALID_POLICY: Advice(
        Act.ROLLOUT, "The ClusterPolicy, the NVIDIADriver or the RolloutPolicy cannot be followed as it is written, or something "
        "that it names is missing. Nodes under way finish under the last valid settings.",
        "`gpuward status` quotes the field, its value and what to write instead. Correct it."),
    Reason.NODE_GONE: Advice(
        Act.NO, "The Node object is being deleted, so that upgrading it would be for nothing.",
        "If it does not go, `kubectl get node NODE -o yaml` shows the finalizer that keeps it."),
    Reason.NODE_NOT_READY: Advice(
        Act.YES, "The kubelet does not answer or says that the node is not Ready. Its pods could neither be evicted nor started.",
        "`kubectl describe node NODE` says what it lacks. Repair it, remove it from the cluster, or leave it out with `gpuward "
        "skip NODE`. The others go on meanwhile, as far as maxUnavailable lets them: it counts as out of service."),
    Reason.DRIVER_POD_MISSING: Advice(
        Act.LATER, "A DaemonSet is to make a driver pod here and has not done so yet. Mostly that takes "
        "seconds: a node in mid-upgrade says so only after 5 minutes.",
        "If it lasts, `gpuward explain NODE` names the labels or taints in the way; `kubectl describe daemonset` in the "
        "operator's namespace shows pods that may not be created. A node that was done before has no deadline: it waits until "
        "somebody acts."),
    Reason.DRIVER_ORPHANED: Advice(
        Act.WISH, "The driver pod belongs to no DaemonSet, as after a deletion with `--cascade=orphan`. It runs on and serves.",
        "Nothing, while upgrades are on: another one takes its place when the node is upgraded. While they are off, deleting the "
        "pod replaces it at once, under whatever uses its driver. Where no ClusterPolicy is in force nothing takes its place: "
        "delete it where the driver is to go."),
    Reason.TEMPLATE_SETTLING: Advice(
        Act.NO, "The DaemonSet has just got a new template, or settings of the driver have just been changed. The DaemonSet's "
        "controller has not made a revision of the template yet, or the change was made less than 3 seconds ago: nobody starts "
        "before that, as a RolloutPolicy may be written right after it.",
        "If it lasts for minutes, look at kube-controller-manager: no DaemonSet of the cluster is being taken care of."),
    Reason.TEMPLATE_EDITED: Advice(
        Act.ROLLOUT, "Somebody else edits a driver DaemonSet again and again, or holds it. Nothing is decided by what it says "
        "meanwhile.",
        "The reason names the field manager. Stop it, and make the change in the ClusterPolicy or the NVIDIADriver."),
    Reason.DRIVER_REPELLED: Advice(
        Act.YES, "The node has a taint (`NoSchedule` or `NoExecute`) that the DaemonSet of its next driver, or that of the "
        "validator, does not tolerate. A driver pod that it has runs on. Once that had gone no other one would come, or nobody "
        "would confirm it, so the node is not begun with.",
        "Take the taint from the node, or have both tolerate it: `daemonsets.tolerations` of the ClusterPolicy for its drivers "
        "and all operands, `tolerations` of the NVIDIADriver for its drivers. Others go on meanwhile."),
    Reason.VALIDATION_OFF: Advice(
        Act.YES, "A label of this node (`nvidia.com/gpu.deploy.operator-validator`, `.container-toolkit` or `.device-plugin`) is "
        "not `true`, and no validator is ready on it. Nobody would confirm a new driver, so the node is not begun with.",
        "Take the label away until the node is upgraded, or bring about what validators need; others go on meanwhile."),
    Reason.GANG_AWAITED: Advice(Act.NO, "By `gangs` of the RolloutPolicy nodes of one run start together, and one may not yet.",
        "Nothing: they start once there is room for all, or in parts where there never is."),
    Reason.GANG_SPARED: Advice(
        Act.WISH, "By `gangs` of the RolloutPolicy a run that had to leave a node is spared for `until`. It has come here.",
        "Nothing, or `gpuward explain NODE`, which has the command that upgrades the node now: its pods are evicted then."),
    Reason.DOMAIN_LIMIT: Advice(
        Act.NO, "`domains` of the RolloutPolicy bounds how many nodes of one domain (a rack, a zone, an NVLink domain), or how "
        "many domains, may be out of service at once. So many are.",
        "Nothing: the node starts once others are done. `max` of `domains` lets more be disturbed at once."),
    Reason.DOMAIN_BROKEN: Advice(
        Act.YES, "So many nodes of a domain, or so many domains, as `domains` of the RolloutPolicy lets be disturbed are out of "
        "service, and no upgrade brings them back: they are cordoned, not Ready, or without a driver that works.",
        "`gpuward explain NODE` names them. Bring them back into service, or raise `max` of `domains`. Nodes of other domains go "
        "on, where their domains have room."),
    Reason.WINDOW_SHUT: Advice(
        Act.WISH, "The RolloutPolicy has windows in which nodes may start, or in which they may not, and now none may: "
        "none is open or, with `windowFit: P90`, none stays open for as long as an upgrade takes. Nodes under way finish; one "
        "that failed is tried again.",
        "Wait: it starts by itself when the windows open. A node for which it is urgent starts at once with `kubectl annotate "
        "node NODE nvidia.com/gpu-driver-upgrade-requested=true`."),
    Reason.IDLE_AWAITED: Advice(
        Act.NO, "`opportunistic` of the RolloutPolicy lets nodes start once no GPU pod has used them for a while, and evicts "
        "nobody until a time that the reason names.",
        "Nothing. A node for which it is urgent starts at once with `kubectl annotate node NODE "
        "nvidia.com/gpu-driver-upgrade-requested=true`, which evicts its pods."),
    Reason.NOTICE_GIVEN: Advice(
        Act.NO, "`notice` of the RolloutPolicy has pods told before they are evicted. The node would start now, and has its "
        "place among those that may be under way; it goes on when the time is up, or once all its pods have acknowledged.",
        "Nothing. Owners of pods that may go before that say so with `kubectl annotate pod -n NAMESPACE POD "
        "gpuward.io/acknowledged-notice=ID --overwrite`; the reason has the ID."),
    Reason.NOTICE_UNANSWERED: Advice(
        Act.YES, "The RolloutPolicy has `acknowledge: Required`, the time of the notice is up, and not all pods of the node have "
        "acknowledged it. Others of its wave go on meanwhile.",
        "Ask the owners of the pods. Each one acknowledges with `kubectl annotate pod -n NAMESPACE POD "
        "gpuward.io/acknowledged-notice=ID --overwrite`; the reason has the ID. `acknowledge: Optional` lets all nodes go on "
        "when their time is up."),
    Reason.ABORTED: Advice(
        Act.WISH, "Somebody ended the rollout of this driver with `gpuward abort`. No node starts with it; nodes under way "
        "finish, or go  back if their driver was not touched.",
        "Ask for another driver, or for the one before: its rollout starts anew. `gpuward resume` lets this one go on."),
    Reason.PLAN_DIFFERS: Advice(
        Act.ROLLOUT, "The annotation `gpuward.io/approved-plan` has a plan that the rollout has to keep to, and by now it would "
        "go otherwise: other drivers, nodes, waves or limits. Nodes under way finish.",
        "`gpuward plan --check FILE` has all differences. Put back what was changed, or save this plan with `gpuward plan --save "
        "FILE` and approve of it with `gpuward approve --plan FILE`. Without the annotation nothing is held."),
    Reason.WAVE_FAILED: Advice(
        Act.ROLLOUT, "More nodes of an earlier wave have failed than its `failureBudget` in the RolloutPolicy allows, so the "
        "driver comes to no node of a later one.",
        "`gpuward explain NODE` of one that failed says why. Correct it, or ask for the driver before. `gpuward retry NODE` "
        "tries a node again, `gpuward resume` forgives the failures so far, `gpuward promote` goes on without these nodes."),
    Reason.WAVE_EMPTY: Advice(
        Act.ROLLOUT, "Nodes of an earlier wave had begun with this driver, and before the wave was over the last of them was "
        "deleted, or left the rollout: nobody has seen whether the driver runs there.",
        "Label another node for the wave, or let the node come back: it gets the driver first. `gpuward promote` goes on without "
        "the wave."),
    Reason.WAVE_NOT_DONE: Advice(
        Act.NO, "The RolloutPolicy has waves, and a node of an earlier one has yet to be done. A wave is done when each of its "
        "nodes that can be upgraded is up to date, and at least one is; nodes that are skipped are not waited for, and nodes "
        "that are not Ready only while no other is up to date.",
        "Nothing, unless the node that is waited for is held: `gpuward explain NODE` says what would help it. `gpuward skip "
        "NODE` leaves it out, `gpuward promote` does not wait for it this time."),
    Reason.WAVE_SOAKING: Advice(
        Act.WISH, "All nodes of an earlier wave are done, and its `soak` in the RolloutPolicy is not over.",
        "Wait: it goes on by itself or, where the wave has `approval: Required`, waits for `gpuward approve`, which may be given "
        "now. `gpuward promote` ends the soak now."),
    Reason.ANALYSIS_FAILED: Advice(
        Act.ROLLOUT, "A check of an earlier wave (`analysis` in the RolloutPolicy) failed as often as it may. No later wave "
        "starts until somebody has looked.",
        "The reason names the check, and what was measured. Ask for the driver before, or mend what is wrong and let `gpuward "
        "resume` have it measured anew. `gpuward promote` goes on all the same; a check that is written anew is measured anew."),
    Reason.ANALYSIS_UNKNOWN: Advice(
        Act.YES, "All nodes of an earlier wave are done, and nothing is known of a check of it: its Prometheus does not answer "
        "or has no data, or nodes do not report the condition. What is not known neither passes nor fails.",
        "The reason says what is in the way. Mend that: it is measured again by itself. `gpuward promote` goes on without."),
    Reason.ANALYSIS_RUNNING: Advice(
        Act.WISH, "All nodes of an earlier wave are done, and its checks (`analysis` in the RolloutPolicy) have to pass for a "
        "while before later waves start.",
        "Wait: it goes on by itself if they pass. `gpuward status` says what was measured last; `gpuward promote` goes on now."),
    Reason.APPROVAL_REQUIRED: Advice(
        Act.YES, "All nodes of an earlier wave are done, and the RolloutPolicy wants somebody's approval before the next ones "
        "start.",
        "Look whether all is well on the nodes that are done, then `gpuward approve`. An approval is for this driver, and for "
        "the waves that are done when it is given."),
    Reason.WAVE_LIMIT: Advice(
        Act.NO, "As many nodes of its wave are out of service as `maxUnavailable` of the wave allows. The node has its turn "
        "after others.",
        "Nothing. If it goes too slowly, raise `maxUnavailable` of the wave in the RolloutPolicy."),
    Reason.GROWTH_LIMIT: Advice(
        Act.NO, "As many nodes are under way as `growth` in the RolloutPolicy allows so far. It allows more as nodes are done.",
        "Nothing. If it goes too slowly, raise `start` or `factor` of `growth`."),
    Reason.IMAGE_NOT_STAGED: Advice(
        Act.NO, "The RolloutPolicy has the images of the next driver brought onto each node before its turn. On this one they "
        "are not yet: a pod `gpuward-prestage-...` has them pulled there, or others come first.",
        "Wait. If it lasts, `kubectl get pods -l app=gpuward-prestage -o wide` in the operator's namespace shows where images "
        "are pulled, and `prestage.parallel` says on how many nodes at once."),
    Reason.STAGING_FAILED: Advice(
        Act.YES, "The images of the next driver could not be pulled onto this node, or its disk is nearly full. It keeps its "
        "driver and stays in service; others go on, and it is tried again, after an hour at the latest.",
        "The cause is the kubelet's, the scheduler's or the API server's. Mend the registry, its pull secret or the disk. A pod "
        "that does not stop has a finalizer, or its kubelet does not end it. With `prestage.onFailure: Ignore` such nodes are "
        "upgraded all the same."),
    Reason.OPERANDS_STARTING: Advice(
        Act.NO, "Only the driver pod has to be restarted. That is safe under running pods while the device plugin or DCGM holds "
        "the driver open, and they are just starting.",
        "If it lasts, look at these pods in `gpuward status -o wide`: one that does not start keeps the node waiting."),
    Reason.FAILURE_BUDGET: Advice(
        Act.ROLLOUT, "More nodes failed than the failure budget allows. Nodes under way finish, and no other one starts.",
        "`gpuward status --failed` lists them, `gpuward explain NODE` has the cause. Mend it or go back to the old driver "
        "version, then `gpuward resume`."),
    Reason.NEW_DRIVER_FAILS: Advice(
        Act.ROLLOUT, "No node is up to date with the new driver yet, and the first one is in trouble with it. The others "
        "keep their driver. Where drivers come from several DaemonSets, as precompiled ones do, it is about the nodes "
        "of one of them.",
        "`gpuward explain NODE` for the node in the reason; the log of its driver pod says more. Correct the version, the image "
        "or its settings, or go back. If only that node is broken, `gpuward resume` lets the others go on."),
    Reason.REFUSED_ELSEWHERE: Advice(
        Act.ROLLOUT, "The API server refuses to let a driver pod be replaced on another node. No further node is emptied for "
        "nothing.",
        "The message is the server's: mostly an admission webhook or a missing right. Mend that; it is tried again by itself, or "
        "after `gpuward resume`."),
    Reason.EVICTION_FORBIDDEN: Advice(
        Act.ROLLOUT, "The operator lacks the right to evict pods, as one node has found out. No further node with such pods is "
        "emptied for nothing; nodes without them go on.",
        "Give the operator's service account the right to create `pods/eviction` (`deploy/operator.yaml` has it; `gpuward check` "
        "says what is missing). The node that found out tries again by itself, or after `gpuward retry`; `gpuward resume` lets "
        "the others go on at once."),
    Reason.LEDGER_REFUSED: Advice(
        Act.ROLLOUT, "Before a node starts it is noted on the Lease of the leader election, and the API server refuses that "
        "write.",
        "Give the operator's service account the right to update that Lease (`deploy/operator.yaml` has it), or mend the webhook "
        "that is quoted."),
    Reason.HELD_DEVICES: Advice(
        Act.YES, "A pod that asks for no GPU has the driver open, so that it could not be unloaded. The node has not been "
        "cordoned.",
        "End that pod, or choose `deviceHolders: Evict` or `Ignore` in the RolloutPolicy. The reason says how the pod holds the "
        "driver."),
    Reason.PROTECTED_PODS: Advice(
        Act.YES, "A GPU pod has to leave and may not be evicted: no controller would start it again, it has an emptyDir volume, "
        "a DaemonSet or the kubelet would bring it back, or several disruption budgets cover it. The node has not been cordoned.",
        "`gpuward explain NODE` has the pod and the setting that would let it go. Or delete the pod when its work is done."),
    Reason.UNDRAINABLE: Advice(
        Act.YES, "Its pods could not be moved in time, and `undrainable` of the RolloutPolicy has such nodes given back: it "
        "serves with the driver that it has, and others go on.",
        "End or move the pods that the reason names: it is tried again once nothing has to leave it, or with `gpuward retry "
        "NODE`. So it is for another driver."),
    Reason.BUDGET_BLOCKS: Advice(
        Act.YES, "A disruption budget would not let the pod go even if all its pods were healthy: it wants as many as there are, "
        "or Kubernetes cannot work it out, as with a percentage or maxUnavailable over pods whose controller has no scale.",
        "Ask the owner of the budget to allow one disruption or to run one replica more; `gpuward explain NODE` has the "
        "command."),
    Reason.BUDGET_USED_UP: Advice(
        Act.NO, "A disruption budget has no room just now, as other pods under it are away. It has room again when they are "
        "back.",
        "If it lasts, see why these pods do not get ready: `kubectl get pdb -A` shows current and desired healthy pods."),
    Reason.UNAVAILABLE_LIMIT: Advice(
        Act.NO, "As many nodes are out of service as `maxUnavailable` allows. Cordoned nodes and nodes that are not Ready count, "
        "too.",
        "Nothing, while nodes are under way. Nodes that the reason names and that are broken or cordoned take the room of "
        "others: bring them back into service, or raise the limit."),
    Reason.NO_NODE_MAY_START: Advice(
        Act.ROLLOUT, "`maxUnavailable` allows no node at all, or it is filled by nodes that no upgrade brings back: broken, "
        "cordoned or failed ones. No node is under way, and none starts.",
        "Bring the nodes that the reason names back into service, take them out of the cluster, or raise `maxUnavailable`. "
        "`gpuward explain NODE` tries what would do."),
    Reason.PARALLEL_LIMIT: Advice(
        Act.NO, "As many nodes are under way as `maxParallelUpgrades` allows. The node has its turn after others.",
        "Nothing. If it goes too slowly, raise the limit; see why those under way take long."),
    Reason.DELETION_UNSEEN: Advice(
        Act.YES, "The NVIDIADriver of this node is deleted. Its drivers run on for half a minute, so that one that is made again "
        "costs nothing. After that the reason stays where the operator cannot list roles: whether the drivers are to go, or were "
        "left behind (`--cascade=orphan`), is told by the roles that the NVIDIADriver owned.",
        "To keep the drivers, or to have others, create an NVIDIADriver of the name. Where the reason says that roles cannot be "
        "listed, give the operator the right to list and watch `roles.rbac.authorization.k8s.io` in its namespace."),
    Reason.MAINTENANCE_AWAITED: Advice(
        Act.NO, "`interop.nodeMaintenance` of the RolloutPolicy has a maintenance operator asked before pods are evicted. The "
        "node is cordoned, its pods run on, and it goes on once that operator has the NodeMaintenance ready: it lets only so "
        "many nodes be maintained at once, and each for one thing at a time.",
        "Nothing, while the phase changes: `kubectl get nodemaintenances -A` shows all of them. If nobody takes it up, see "
        "whether a maintenance operator runs. `kubectl annotate node NODE gpuward.io/node-maintenance=ready --overwrite` lets "
        "this node go on without, `nodeMaintenance: \"Off\"` all of them."),
    Reason.MAINTENANCE_UNSEEN: Advice(
        Act.YES, "`interop.nodeMaintenance` of the RolloutPolicy has a maintenance operator asked before nodes are emptied, "
        "and gpuward cannot follow NodeMaintenances (maintenance.nvidia.com/v1alpha1). No node is cordoned for that.",
        "Install NVIDIA's maintenance operator; where rights are missing, `gpuward status` has the command that gives them. Or "
        "set `nodeMaintenance: \"Off\"`."),
    Reason.JOBS_RUNNING: Advice(
        Act.NO, "The policy lets certain pods finish (`waitForCompletion`). The node is cordoned and goes on once they are "
        "complete.",
        "Without a timeout this may last for as long as the jobs do. Set one, or end the jobs."),
    Reason.EVICTING: Advice(
        Act.LATER, "GPU pods were asked to leave and have their grace periods to end.",
        "Nothing, until the deadline. A pod that hangs in Terminating has a finalizer or a process that does not stop."),
    Reason.EVICTION_REFUSED: Advice(
        Act.LATER, "The eviction API refuses, mostly for a disruption budget. It is tried again after 2 s, then ever more "
        "rarely, every 30 s at last.",
        "Make room in the budget that the message names, before the deadline. With `killAtDeadline` the pod is deleted then."),
    Reason.COMES_BACK: Advice(
        Act.YES, "A controller puts pods back on the cordoned node as soon as they are evicted, mostly as they tolerate the "
        "cordon. A node that failed for that is not tried again while such a pod is there: it would be evicted in vain.",
        "Take the toleration for unschedulable nodes from that workload, or `nodeName` from its template where it has one, or "
        "scale it down until the node is done."),
    Reason.UNCORDONED: Advice(
        Act.YES, "Somebody made the node schedulable again in mid-upgrade, and pods came. It is cordoned again each time.",
        "`kubectl get node NODE -o yaml --show-managed-fields` tells who it was. Stop the script, the autoscaler or the person."),
    Reason.KILLING: Advice(
        Act.LATER, "The time to evict was up, and `killAtDeadline` had the pods deleted. They have their grace periods, up to a "
        "bound.",
        "If deletion is refused, the message says why. A pod that does not end has a finalizer, or its node does not answer."),
    Reason.QUARANTINED: Advice(
        Act.YES, "Its pods could not be moved in time, and `undrainable` of the RolloutPolicy has such nodes quarantined: it "
        "stays cordoned with the driver that it has, its pods run on, and others go on in its place.",
        "End or move the pods that the reason names: it is uncordoned, and tried again, once nothing has to leave it. `gpuward "
        "retry NODE` does so now, `gpuward skip NODE` puts it back into service with its driver."),
    Reason.DRIVER_STOPPING: Advice(
        Act.LATER, "The old driver pod has been deleted and unloads the driver, which takes up to some minutes.",
        "If it lasts, its log says what holds the kernel modules; a process outside of Kubernetes may."),
    Reason.DEVICE_PLUGIN_STOPPING: Advice(
        Act.LATER, "The driver goes from this node, for another one, for another kind of workload or for good, and its device "
        "plugin stops. Until then the node offers its GPUs, so that a pod could be put there which finds no driver.",
        "If it lasts, `kubectl describe pod` of that pod says why it does not end. An upgrade waits 45 s for it; a cordon that "
        "waits for nothing else is lifted once it has."),
    Reason.DOES_NOT_STOP: Advice(
        Act.YES, "The driver goes from this node, and its device plugin, or the driver pod, was asked to stop long ago "
        "(`deadlines.pod-restart-required` of the RolloutPolicy). An upgrade that was under way has failed for that. The node "
        "stays cordoned: it may offer GPUs that no driver serves.",
        "The pod has a finalizer, or its kubelet does not answer: `kubectl describe pod` of it says. The cordon is lifted once "
        "the pod has gone."),
    Reason.REPLACEMENT_REFUSED: Advice(
        Act.YES, "The API server refuses the deletion of the driver pod, or the look before it. The driver is untouched.",
        "The message is the server's. Mend the webhook or the right; it is tried again by itself, every 30 s at last."),
    Reason.DRIVER_STARTING: Advice(
        Act.LATER, "The new driver pod is not ready yet. An image is pulled and modules are built or loaded, which takes "
        "minutes.",
        "Nothing, until the deadline of `pod-restart-required` (30 minutes unless the RolloutPolicy has another one)."),
    Reason.DRIVER_UNPLACED: Advice(
        Act.YES, "For 10 s the scheduler has found no place for the driver pod that was made for this node, mostly as it asks "
        "for more memory or CPU than the node has left, or does not tolerate a taint.",
        "`kubectl describe pod` of the driver pod says what it lacks. Make room, or correct the requests and tolerations in the "
        "policy: the pod is replaced then."),
    Reason.DRIVER_FAILING: Advice(
        Act.YES, "The driver pod crashes, or its image cannot be pulled. A node under way fails at its deadline and is tried "
        "again some times.",
        "`kubectl logs` of the driver pod, also `--previous`; `kubectl describe pod` for images. Common causes: a version "
        "without an image for this operating system, a kernel without headers, a driver on the host."),
    Reason.IMAGE_MISSING: Advice(
        Act.YES, "The registry says that it has no such image: a version that is mistyped or was never pushed, or a kernel or an "
        "operating system for which there is no driver. The node is not cordoned, and keeps its driver.",
        "Correct the version, or push the image: it is asked for again each minute. Where nodes pull from a mirror that has "
        "more than the registry that is named, `gpuward run --check-images=false` asks for none."),
    Reason.DRIVER_IN_USE: Advice(
        Act.YES, "Somebody deleted the driver pod under running GPU pods, or gave a node with virtual machines to containers by "
        "its labels. What was loaded stays loaded for these, so that the new pod cannot load its own driver.",
        "The pods run on. Let them end or, under GPU pods, ask for an upgrade of the node: `gpuward explain NODE` has the "
        "command."),
    Reason.VALIDATOR_MISSING: Advice(
        Act.LATER, "The new driver is ready, and no validator pod is on the node yet to confirm it.",
        "If it lasts, look at DaemonSet `nvidia-operator-validator`: its node selector, its tolerations, or quota."),
    Reason.VALIDATOR_STARTING: Advice(
        Act.LATER, "A validator pod is at work: toolkit, CUDA and plugin have to be there for it to get ready.",
        "If it lasts, `kubectl logs POD --all-containers` says which check it is in. The node fails after 10 minutes, unless the "
        "RolloutPolicy has another deadline."),
    Reason.VALIDATOR_REPLACING: Advice(
        Act.NO, "A validator pod from before this driver or this attempt is replaced, so that what runs now is really tested.",
        "Nothing."),
    Reason.FAILED: Advice(
        Act.YES, "The upgrade of this node failed and its retries are used up, or somebody else called it failed. It stays "
        "cordoned unless its driver was not touched.",
        "`gpuward explain NODE` has the step and the cause. Mend it, then `gpuward retry NODE`. It also serves again as soon as "
        "its driver pod is ready and validated, or another driver version is asked for."),
    Reason.RETRY_LATER: Advice(
        Act.NO, "The upgrade of this node failed, and it is tried again by itself after a pause that doubles.",
        "If you know the cause, mend it before the next try; `gpuward retry NODE` tries it at once."),
    Reason.UNKNOWN_STATE: Advice(
        Act.YES, "The label `nvidia.com/gpu-driver-upgrade-state` has a value that is none of NVIDIA's. Nothing is done about "
        "the node.",
        "Remove the label: gpuward sets the right one. Or set it to `upgrade-required`."),
    Reason.TWO_DRIVER_PODS: Advice(
        Act.YES, "Several driver pods run on the node, and it cannot be known which one holds the driver.",
        "Find the DaemonSet that should not be there (`kubectl get pods -o wide` in the operator's namespace) and delete it, or "
        "the pod without one."),
    Reason.MAINTENANCE: Advice(
        Act.YES, "NVIDIA's operator handed this node to a maintenance operator, by the state on its label. gpuward leaves it "
        "alone, and it keeps its slot.",
        "Finish it there, or set its state label to `upgrade-required` to have it upgraded here."),
    Reason.METADATA_BEHIND: Advice(
        Act.NO, "The node runs the driver that it should. Its driver pod only lacks some labels, annotations or a node selector "
        "of the newest template.",
        "Nothing: restarting a driver for that would disturb its pods. The pod has them when it is replaced next."),
    Reason.WRITE_REFUSED: Advice(
        Act.YES, "The API server refuses to change this node, or a webhook drops what is written. The others go on.",
        "The message is the server's. Mend the webhook or the right; it is repeated after 1 s, then ever more rarely, every 45 s "
        "at last."),
    Reason.WRITE_UNANSWERED: Advice(
        Act.NO, "The API server has not answered a change of this node for some seconds. Nothing is decided about it meanwhile.",
        "If it happens often, look for slow admission webhooks. After 30 s it counts as a refusal."),
    Reason.OPERAND_FAILING: Advice(
        Act.YES, "No upgrade is under way on the node, and a pod of the GPU stack other than the driver's crashes, cannot be "
        "pulled or has not become ready for 5 minutes: the container toolkit, the device plugin, the validator, an exporter or "
        "GPU feature discovery. Without the toolkit or the device plugin no new GPU pod runs there.",
        "`gpuward explain NODE` has the container, its last words and what to do. Correct what it complains about, mostly its "
        "section of the ClusterPolicy or the node's container runtime; it is started again by itself."),
    Reason.MIG_NOT_APPLIED: Advice(
        Act.YES, "The MIG manager could not give the node's GPUs the layout that the label nvidia.com/mig.config asks for, or "
        "has not been done with it for 15 minutes. Until it is done it keeps the device plugin, DCGM and GPU feature discovery "
        "off the node, so no new GPU pod runs there; where one of their pods does not end in 5 minutes NVIDIA's leaves it so.",
        "Its pod's log says why: mostly there is no layout of that name, or pods use the GPUs. It tries again when the label "
        "changes, and when its pod is deleted and comes anew."),
    Reason.UNDECIDED: Advice(
        Act.YES, "gpuward met an error of its own when it looked at this node, and touches it no more. The others go on.",
        "Please report it: `gpuward bug-report` gathers what is needed. The error is in the reason."),
}
