"""The commands of history, audit and replay: options in, report and exit code out.

Options and their help only: each is a method of `histories.py` or a function of the engine.
"""
