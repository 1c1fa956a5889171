"""The ledger: its rules and fold (pure) and the exactly-once host that runs them on Kafka."""

from rollbook.processors.rules import (
    activate_policy_version,
    assess_policy_compatibility,
    compare_and_reserve,
    transition_lifecycle,
)

__all__ = ["activate_policy_version", "assess_policy_compatibility", "compare_and_reserve", "transition_lifecycle"]
