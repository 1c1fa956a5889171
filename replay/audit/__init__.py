"""Audit: a history folded again, and everything in it that can be derived held against what is there.

It believes nothing that it can derive; a finding names its offset.
"""
