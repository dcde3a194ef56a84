"""Real nodes on this machine: a kubelet, containerd and runc in namespaces of their own, joined to a real control plane."""
