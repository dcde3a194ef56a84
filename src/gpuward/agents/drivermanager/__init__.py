"""The driver manager: it makes room on a node for the driver that comes after it in its pod. Start at `plan`."""
