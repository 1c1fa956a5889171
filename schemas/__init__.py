"""The contract: Avro records of every topic, typed models and the codec."""
