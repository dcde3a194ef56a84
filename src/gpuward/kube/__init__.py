"""Talk to an API server: the only package that does, and the one that maps every foreign error to `gpuward.errors`."""
