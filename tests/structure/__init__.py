"""The structure of the source tree as data: its modules, what they import, and the layers they lie in.

`layers.py` is the table; a folder more is a line in it. `python -m rollbook.tests.structure` prints it with all sizes.
"""
