"""Actions to API calls: one small function per action, each with its precondition, each outcome fed back into the caches."""
