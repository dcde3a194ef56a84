"""Measurements: each prints a table and writes JSON, and reports ratios measured in one run. They are not tests."""
