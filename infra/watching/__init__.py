"""A live view of one run in a terminal.

It only reads: committed records, without a group; a frame is a pure function of what is known.
"""
