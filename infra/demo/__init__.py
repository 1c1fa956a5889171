"""The demo: a small transformer, trained asynchronously with GRPO on a verifiable task, on CPU. Needs extra `torch`."""
