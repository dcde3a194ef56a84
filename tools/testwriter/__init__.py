"""A recorded decision as a pytest file: what was decided, on the facts that it needs."""
