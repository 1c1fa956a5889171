"""Records to Kafka: a bounded queue, a connection, and what became of each record.

Nothing here may block or raise into the caller's training for Kafka's sake.
"""
