"""A real Kubernetes control plane on this machine, for tests: etcd, API server, controllers, scheduler, and nodes by kwok."""
