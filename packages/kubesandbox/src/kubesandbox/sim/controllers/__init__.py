"""The controllers of kube-controller-manager, and the scheduler, as far as an operator leans on them."""
