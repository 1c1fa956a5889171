"""`rollbook doctor`: looks at a cluster and its runs, and says what is unsafe, each with its remedy.

`look.py` asks, checks judge what was seen and ask nothing; a check more is a line in `checks.py`.
"""
