"""Settings, embedded broker, topics, the rollbook command and the demo."""
