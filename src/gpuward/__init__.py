"""gpuward: a GPU operator for Kubernetes, a drop-in for the API of the GPU Operator by NVIDIA."""
