"""The clients: rollout worker, reward service, trainer, weight coordinator."""
