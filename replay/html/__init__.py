"""The answer as one page with pictures; needs the extra `html`.

One file that asks for nothing outside; the plotting library is imported in `figures.py` alone.
"""
