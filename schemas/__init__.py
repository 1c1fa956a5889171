"""The contract: Avro records of every topic, typed models, and the codec between them.

Formats only grow (docs/compatibility.md): a field more needs a default, and its schema goes to `avro/shipped/` first.
"""
