"""The command line: thin commands, and the only place where the parts are wired together."""
