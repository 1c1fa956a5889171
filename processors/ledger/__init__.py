"""The fold: one deterministic function from a prefix of the log to the ledger's state and its decisions.

No clock, randomness, I/O or unordered iteration. A change of any decision's bytes is a new fold version beside the old.
"""
