"""What the tests of a cluster, and of what is plugged into one, share."""
