"""Ask registries for container images."""
