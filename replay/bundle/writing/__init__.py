"""Bundles to disk: drafted, checked as a reader would, whole or not at all."""
