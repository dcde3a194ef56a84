"""The validator: it tries the layers of the stack on a node, one component after the other, and says what is missing.

Start at `plan`.
"""
