"""The engine: a bundle through the stages, what differs first, and who is to blame."""
