"""Two runs of the same tasks, held against each other.

The first difference is that of the earliest stage of the earliest update.
"""
