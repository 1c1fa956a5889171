"""Reading decisions and snapshots for the dashboard: from where, how far, and what is there to read.

Without a group, committed records only; each record counts once, however often it is read.
"""
