"""The engine: bundles through the stages, where they first differ, and what is to blame.

It never computes by guess: what is outside a stage's contract is unsupported, and says so.
"""
