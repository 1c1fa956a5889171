"""What the demo trains, and how: the task, the policy, GRPO and its records.

No Kafka and no processes, and deterministic per seed: `simulate.py` runs all of it in one process.
"""
