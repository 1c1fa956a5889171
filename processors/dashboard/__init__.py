"""The dashboard: what is committed, folded into memory, and shown. It only reads.

`answers.py` is its API: what is there stays there, and is in the OpenAPI page.
"""
