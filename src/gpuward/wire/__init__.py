"""Kubernetes JSON to views, and nowhere else: each module decodes only the fields that a view keeps."""
