"""The stages of replay: one table, and what each stage computes.

A stage, payload or output more is a line in `table.py`; reader, engine, reports and reference follow it.
"""
