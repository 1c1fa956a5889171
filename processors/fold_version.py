"""The version of the ledger's rules: what a run is configured with, and the newest that this package can fold."""

FOLD_VERSION = 1
"""A change of behaviour is a new number, kept beside the old ones."""
