"""The stages of replay: one table, and what each stage computes."""
