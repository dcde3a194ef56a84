"""Keep views of objects in step with the API server: list, watch, and what own writes were answered."""
