"""What clients read back: decisions, epochs, freshness, and the arrays behind trajectories.

Committed records only; every wait has an end; arrays are believed after their digest.
"""
