"""The ClusterPolicy's drivers, and what all driver DaemonSets have in common."""
