"""Typed models of every record, one module a topic of conversation."""
