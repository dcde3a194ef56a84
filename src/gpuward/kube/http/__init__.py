"""Carry requests to an API server, and tell what its answers mean."""
