"""Records to Kafka: a bounded queue, a connection, and what became of each record."""
