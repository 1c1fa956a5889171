"""Whose convention a bundle's numbers follow, found by trying all that are known.

A match is told only where the bundle's numbers could have told it from the others.
"""
