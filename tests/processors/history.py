"""A run's history in few words: each method writes one lifecycle record, folds it, and returns its decision.

    history = History().opened()
    history.generated("t0")
    history.rewarded("t0")
    history.learner()
    decision = history.reserve("u0", "t0")

Defaults come from the state folded so far (revisions, epochs, evidence), so that a test names only what it is about.
`log` keeps the source records: fold them again with `refold`, or produce them to Kafka.
"""

from rollbook.tests.processors.act_policy import PolicyActs
from rollbook.tests.processors.act_rollout import RolloutActs
from rollbook.tests.processors.act_run import RunActs
from rollbook.tests.processors.act_update import UpdateActs
from rollbook.tests.processors.log import LEARNER, Log, item, reasons, refold, says

__all__ = ["LEARNER", "History", "Log", "item", "reasons", "refold", "says"]


class History(RunActs, RolloutActs, UpdateActs, PolicyActs):
    """One run on a log of its own, or on the log of another history."""
