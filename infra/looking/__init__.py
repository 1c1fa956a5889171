"""Looking at a run: its ledger now, its decisions, and the history of one thing.

It only reads; what is shown is what is committed, and `*_page.py` says it for people.
"""
