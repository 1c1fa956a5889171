"""What became of all trajectories of a run, and what was never trained on.

Every trajectory has one fate; the sums over fates are the whole.
"""
