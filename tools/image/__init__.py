"""gpuward's container image, built without a container runtime: Debian packages, `uv.lock` and gpuward's own wheel."""
