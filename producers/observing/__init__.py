"""Training without asking: what happened is told as a fact."""
