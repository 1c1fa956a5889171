"""The clients: rollout worker, reward service, trainer, weight coordinator.

Their methods are public (`rollbook.producers`); what they share is in `client.py`.
"""
