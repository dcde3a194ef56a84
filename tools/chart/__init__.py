"""The Helm chart of deploy/helm/gpuward: the files in it that are made from the code, and its package."""
