"""Training without asking: what happened is told as a fact.

It waits for nothing, so that an observed run trains as fast as one without a ledger.
"""
