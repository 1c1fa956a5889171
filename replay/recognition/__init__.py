"""Whose convention a bundle's numbers follow, found by trying all that are known."""
