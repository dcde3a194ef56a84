"""The weaknesses that a driver upgrade by NVIDIA's operator had when gpuward was begun, by number, each in a few words.

A test that shows that one of them is gone has the mark `weakness` with its number. `pytest --weaknesses` prints which tests do.
"""

from __future__ import annotations

WEAKNESSES: dict[int, str] = {
    1: "a failed validation ends as a success",
    2: "pausing leaves cordons behind that nobody lifts again",
    3: "switching upgrades off does not stop evictions under way",
    4: "a failed list in the middle of pod deletion ends the operator's process",
    5: "failed nodes keep their slots, and the rollout stands still without a word",
    6: "what failed is never tried again, and its node stays cordoned",
    7: "a GPU pod of a DaemonSet makes pod deletion fail, or is drained past and keeps the GPU",
    8: "a policy without podDeletion blocks every node",
    9: "nodes are still emptied for a target that was taken back",
    10: "a cordon that an administrator sets or lifts while the node waits is misjudged",
    11: "a node that is relabelled by hand loses its administrator's cordon",
    12: "state and memory are two writes, and a crash between them leaves a lie",
    13: "labels are written without looking whether somebody else wrote them meanwhile",
    14: "the target is found by the beginning of a DaemonSet's name",
    15: "any change of the template replaces every driver",
    16: "a node that leaves the DaemonSet stays cordoned and labelled",
    17: "two driver pods on one node are handled as two nodes",
    18: "a request on a skipped node is lost, and nothing says that the node is skipped",
    19: "cordoned nodes start without any limit",
    20: "nodes that are not ready are started, and fail",
    21: "a cordoned node that starts counts as two",
    22: "a node that does not say whether it is ready counts as ready",
    23: "a driver pod that is gone already is an error that ends the pass",
    24: "nothing is ever killed at the deadline, although the page says so",
    25: "an event's text has a formatting mistake",
    26: "one odd node, pod or DaemonSet stops all of them",
    27: "the first error ends the pass, and finished nodes stay cordoned",
    28: "garbage in one time stamp keeps all nodes cordoned",
    29: "an error about one NVIDIADriver stops the others",
    30: "a node takes one step in a pass, and so ten passes",
    31: "ready pods are noticed by a look every two minutes",
    32: "annotations are noticed by a look every two minutes",
    33: "some waits have no end",
    34: "timeouts start again when the operator does",
    35: "an old leader and a new one evict together",
    36: "background work would end with the pass that began it",
    37: "nodes start by name, not those first that disturb the least",
    38: "an error while jobs are looked at leaves some nodes unlooked at",
    39: "every pass asks for every node again",
    40: "writes go one after the other, each with reads of its own",
    41: "after each write the node is read until it shows it",
    42: "a refused eviction is repeated without a pause",
    43: "nodes that are emptied together use up one another's disruption budgets",
    44: "driver pods are deleted one after the other, after all nodes were looked at",
    45: "annotations that never were are removed by a write",
    46: "every pass logs and copies whole pods",
    47: "repeated upgrades lose their events",
    48: "the locks of nodes that are gone stay in memory",
}

WITHOUT_A_TEST: dict[int, str] = {
    25: "the text is not ours; events are checked by every test of a rollout",
    36: "no work outlives a pass: a drain is what each pass asks of the pods that are still there",
    38: "jobs are among the pods that are watched: looking at them can not fail",
    46: "a decision reads slim views that stay the same objects until they change, and logs nothing",
    48: "there are no locks: a node's actions are in a lane that ends with the pass",
}
"""Why no test shows that a weakness is gone."""
