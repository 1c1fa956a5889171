"""Bundles from disk, put together and checked against what they promise.

Strict: what is not understood is a problem that is named, never skipped.
"""
