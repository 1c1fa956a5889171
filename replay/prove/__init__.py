"""Prove: what went into a policy's weights, and what did not, out of decisions that were derived again."""
