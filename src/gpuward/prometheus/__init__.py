"""Ask a Prometheus what a check of a wave wants to know."""
