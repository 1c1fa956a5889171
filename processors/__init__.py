"""The ledger: its rules and fold (pure) and the exactly-once host that runs them on Kafka."""
