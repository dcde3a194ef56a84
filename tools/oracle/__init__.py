"""A differential oracle: after any changes of the policies the cluster is what a fresh install of the last ones makes of it."""
