"""The updates that really happened, out of the log or an exported file: replayed one after the other.

In the order of their commits, and without bundles on disk.
"""
