"""Tools that the repository needs and users of gpuward do not."""
