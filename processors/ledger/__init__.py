"""The fold: one deterministic function from a prefix of the log to the ledger's state and its decisions."""
