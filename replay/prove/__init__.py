"""Prove: what went into a policy's weights, and what did not, out of decisions that were derived again.

What the log cannot tell is said, and is never taken for absence.
"""
