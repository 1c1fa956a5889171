"""The demo: a small transformer, trained asynchronously with GRPO on a verifiable task, on CPU. Needs extra `torch`.

As an example, read `worker.py` (what a rollout system and a reward service tell the ledger) and `trainer.py` (what a
trainer and a weight coordinator ask of it); `recording.py` is what makes an update replayable. `run.py` starts it all.
"""
