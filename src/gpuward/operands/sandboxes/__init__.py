"""The states of nodes whose GPUs serve virtual machines or confidential containers, one module each. Start at `states.py`."""
