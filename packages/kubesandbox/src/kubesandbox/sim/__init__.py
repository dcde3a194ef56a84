"""What lives behind the sandbox's API server: controllers, scheduler, kubelets and the machines under the nodes."""
