"""The exactly-once host: consume, fold, produce in one transaction.

The numbered steps of `loop.py` and their order are what the simulation holds; it sees Kafka and time through two ports.
"""
