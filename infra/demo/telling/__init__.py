"""What a demo tells of itself: read off its topics, counted while its records are folded again.

Figures are of committed records only; nothing is taken from the processes themselves.
"""
