"""The reference pages in docs/reference/: written from the tables that the code itself uses, never by hand.

`python -m rollbook.infra.reference` writes them anew.
"""
