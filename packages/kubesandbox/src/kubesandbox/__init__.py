"""A Kubernetes cluster in one process: API semantics, controllers, kubelets, machines."""
