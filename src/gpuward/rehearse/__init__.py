"""Rehearse a rollout: a captured cluster is put into the sandbox, and the operator's loops run there in virtual time."""
