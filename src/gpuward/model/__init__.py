"""Frozen values that every other layer speaks in: states, views, the snapshot, policies, actions, plans and holds."""
