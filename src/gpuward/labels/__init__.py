"""Which labels and annotations every node should carry, pure: nodes and a policy in, patches out. Start at `decide.py`."""
