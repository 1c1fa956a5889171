"""The exactly-once host: consume, fold, produce in one transaction."""
