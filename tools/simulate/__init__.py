"""Deterministic simulation: a whole operator on a sandbox, in virtual time, under faults and meddling drawn from one seed."""
