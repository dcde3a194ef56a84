"""Pictures of what `gpuward status` and `gpuward explain` show, for the documentation."""
