"""What docs/ says that follows from the code, made anew by `pytest tests/docs --rewrite-docs`."""
