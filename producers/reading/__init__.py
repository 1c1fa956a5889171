"""What clients read back: decisions, epochs, freshness, and the arrays behind trajectories."""
