"""The table of the checks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rollbook.infra.doctor import cluster, processing, runs
from rollbook.infra.doctor.facts import Facts, Finding, Level


@dataclass(frozen=True, slots=True)
class Check:
    """What is looked at, and the function that judges it."""

    about: str
    judge: Callable[[Facts], Iterable[Finding]]


CHECKS = (
    Check("brokers: time-out bounds, sizes, cleaner, unclean election, protocols, authoriser", cluster.broker_settings),
    Check("topics: present, partitions, copies, retention, sizes, timestamps, compaction", cluster.topic_settings),
    Check(
        "Kafka's own topics of offsets and transactions: copies, min.insync, unclean election", cluster.internal_topics
    ),
    Check("partitions: leaders, copies in sync, a single copy", cluster.copies),
    Check("where the fold stands beside group offsets, log and decisions; records that are gone", processing.positions),
    Check("records that wait, compaction that does not keep up", processing.progress),
    Check("transactions that stay open, also where a broker lost their markers", processing.open_transactions),
    Check(
        "the processor's group: strangers, two processes of one name, more members than partitions", processing.members
    ),
    Check("runs: the version of the rules", runs.versions),
    Check("runs: the number of partitions they are pinned to", runs.pinned_partitions),
    Check("runs: checkpoints against what the horizon forgot", runs.checkpoints),
    Check("runs: payload retention against the horizon and what waits", runs.payloads),
    Check("runs: what is nearly full, in doubt or orphaned; a horizon of 0", runs.room),
)


def diagnose(facts: Facts) -> list[Finding]:
    """Everything that is not as it should be, the unsafe first."""
    found = [finding for check in CHECKS for finding in check.judge(facts)]
    return sorted(found, key=lambda finding: list(Level).index(finding.level))
