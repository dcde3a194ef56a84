"""GPU machines for a cluster in one process: what a GPU stack does on a host, a fleet with GPUs, and a way in for our client."""
