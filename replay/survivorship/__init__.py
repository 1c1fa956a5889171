"""What became of all trajectories of a run, and what was never trained on."""
