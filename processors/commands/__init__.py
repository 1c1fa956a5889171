"""The commands that run a reader of the decisions."""
