"""The controllers of kube-controller-manager, and the scheduler, as far as a GPU operator leans on them."""
