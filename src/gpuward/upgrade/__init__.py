"""The driver-upgrade decision, pure: facts and a policy in, a plan out. Start reading at `decide.py`."""
