"""Everything that lives behind the API server of one sandbox, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubesandbox.sim.controllers.accounts import AccountsController
from kubesandbox.sim.controllers.daemonset import DaemonSetController
from kubesandbox.sim.controllers.deployment import DeploymentController
from kubesandbox.sim.controllers.disruption import DisruptionController
from kubesandbox.sim.controllers.garbage import GarbageCollector
from kubesandbox.sim.controllers.job import JobController
from kubesandbox.sim.controllers.nodelife import NodeLifecycle
from kubesandbox.sim.controllers.replicaset import ReplicaSetController
from kubesandbox.sim.controllers.scheduler import Scheduler
from kubesandbox.sim.hardware import PlainHardware
from kubesandbox.sim.kubelet import Kubelets
from kubesandbox.sim.queue import WorkQueue
from kubesandbox.sim.world import Delays, World

if TYPE_CHECKING:
    from random import Random

    from kubesandbox.sim.faults import Faults
    from kubesandbox.sim.hardware import Hardware
    from kubesandbox.sim.machine import Machine
    from kubesandbox.store import Store


class Simulation:
    """Run the controllers, the scheduler and the kubelets of a cluster on a store.

    What is in the store already is taken over as it is; pods that say that they run are believed.
    """

    def __init__(self, store: Store, random: Random, delays: Delays | None = None, hardware: Hardware | None = None) -> None:
        delays = delays or Delays()
        self.queue = WorkQueue(store.now, delays.reaction_seconds)
        self.world = World(store, self.queue, random, delays, hardware=hardware or PlainHardware())
        self.nodes = NodeLifecycle(self.world)
        self.kubelets = Kubelets(self.world)
        self._controllers = (
            Scheduler(self.world), DaemonSetController(self.world), ReplicaSetController(self.world),
            DeploymentController(self.world), JobController(self.world), DisruptionController(self.world),
            GarbageCollector(self.world), AccountsController(self.world))

    @property
    def faults(self) -> Faults:
        """Return the faults of pods; add to them to make something go wrong."""
        return self.world.faults

    def start(self) -> None:
        """Begin, on the running event loop."""
        self.queue.start()

    def stop(self) -> None:
        """End; nothing happens in the cluster any more."""
        self.queue.stop()

    def machine(self, node: str) -> Machine:
        """Return the machine of a name, whether there is a Node for it or not; raises KeyError for one that does not exist."""
        return self.kubelets.machines[node]

    def set_node_ready(self, node: str, ready: bool) -> None:
        """Let a node's kubelet report that the node is ready, or that it is not."""
        self.kubelets.report_ready(node, ready)

    def disconnect(self, node: str) -> None:
        """Stop a node's kubelet: the node goes to Unknown after the grace period, and its pods hang as they are."""
        self.kubelets.set_alive(node, False)
        self.nodes.fall_silent(node)

    def reconnect(self, node: str) -> None:
        """Let a stopped kubelet go on."""
        self.nodes.speak_again(node)
        self.kubelets.set_alive(node, True)
