"""The processes of a demo, and what they leave for each other besides the log.

Each may be killed at any line: what it has begun is in the log, or in a file that appears whole.
"""
