"""Clients that publish the lifecycle: rollout worker, reward service, trainer, weight coordinator."""
