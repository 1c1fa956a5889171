"""Bundles to disk: drafted, checked as a reader would, whole or not at all.

What is written must pass `reading/`; a name is taken once.
"""
