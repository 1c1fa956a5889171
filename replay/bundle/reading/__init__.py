"""Bundles from disk, put together and checked."""
