"""The two programs of the operator on the node, validator and driver manager: `gpuward agent NAME`.

Each has a pure plan (facts in, steps out) in its own package; the host and the API server are ports.
"""
