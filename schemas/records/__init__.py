"""Typed models of every record, one module a topic of conversation.

A field's description is its documentation; `python -m rollbook.schemas.avro_types` writes the published schemas anew.
"""
