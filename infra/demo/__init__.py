"""The demo: a small transformer, trained asynchronously with GRPO on a verifiable task, on CPU. Needs extra `torch`.

As an example, read `processes/worker.py` (what a rollout system and a reward service tell the ledger) and
`processes/trainer.py` (what a trainer and a weight coordinator ask of it); `learning/recording.py` makes an update
replayable. `run.py` starts it all.
"""
