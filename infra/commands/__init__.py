"""The commands of broker, topics, processor and looking: options in, page and exit code out."""
