"""The loops that keep a cluster as its ClusterPolicy wants it: operands, node labels, driver upgrades. See `operator.py`."""
