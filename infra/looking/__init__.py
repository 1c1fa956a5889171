"""Looking at a run: its ledger now, its decisions, and the history of one thing. Reads only; nothing is committed."""
