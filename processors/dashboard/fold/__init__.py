"""What is committed, folded into the figures that the dashboard shows.

Pure and bounded; sums over the whole log equal the ledger's own.
"""
