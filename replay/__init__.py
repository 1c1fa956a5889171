"""Bundles and the engine that recomputes them, histories and what is derived from them.

`histories.py` is its object for programs, `commands/` the same for the command line.
"""
