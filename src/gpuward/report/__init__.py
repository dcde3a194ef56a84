"""What people read about a cluster, as values: made once, and printed by the CLI, served as a page and told in conditions."""
