"""What the fold costs, by record type and by step, beside a bare loop that only decodes:

    python -m rollbook.tests.benchmarks.fold --versions 20 --groups 25

Each step is measured by itself on the same records: `read` (Avro to a typed record), `encode` (the decision to Avro),
`rows` (what changed, to Avro, as the ledger topic gets it) and `handler`, which is what is left of the fold: the rules,
the tables and their journal, digests and the chain. Times are processor times of the quickest of several rounds, each
type by itself. Compare figures of one run with each other only: they depend on the machine and on what else it does.
"""

import argparse
import gc
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from time import thread_time_ns

from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.schemas.codec import decode, encode, unwrap
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.log import Log

BATCH = 500
"""Records after which the journal is kept, as after a transaction."""


@dataclass
class Cost:
    """Nanoseconds of processor time spent on records of one type."""

    records: int = 0
    read: int = 0
    encode: int = 0
    rows: int = 0
    fold: int = 0

    @property
    def handler(self) -> int:
        """What the fold takes beside the steps that are measured by themselves."""
        return max(0, self.fold - self.read - self.encode)

    @property
    def total(self) -> int:
        """A record from its bytes to those of its decision and of the rows that it changed."""
        return self.fold + self.rows

    def add(self, other: "Cost") -> None:
        """Sum up."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def measure(records: Sequence[SourceRecord]) -> dict[str, Cost]:
    """The cost of each record type of a log, folded once from its first record."""
    ledger = Ledger(0, 1)
    costs: dict[str, Cost] = defaultdict(Cost)
    for at, record in enumerate(records):
        began = thread_time_ns()
        decode(record.value or b"")
        was_read = thread_time_ns()
        folded = ledger.fold(record)
        was_folded = thread_time_ns()
        encode(folded.decision)
        was_encoded = thread_time_ns()
        cost = costs[folded.decision.record_type]
        cost.records += 1
        cost.read += was_read - began
        cost.fold += was_folded - was_read
        cost.encode += was_encoded - was_folded
        if (at + 1) % BATCH == 0:
            ledger.changes()
            cost.rows += thread_time_ns() - was_encoded
            ledger.journal.keep()
    return dict(costs)


def bare(records: Sequence[SourceRecord]) -> int:
    """Nanoseconds of processor time of a loop that only decodes."""
    began = thread_time_ns()
    for record in records:
        unwrap(record.value or b"")
    return thread_time_ns() - began


def total(costs: dict[str, Cost]) -> Cost:
    """All types together."""
    summed = Cost()
    for cost in costs.values():
        summed.add(cost)
    return summed


def quickest_of(rounds: Sequence[dict[str, Cost]]) -> dict[str, Cost]:
    """Each type in the round in which it was quickest."""
    return {
        name: min((costs[name] for costs in rounds), key=lambda cost: cost.total + cost.encode) for name in rounds[0]
    }


def report(costs: dict[str, Cost], bare_ns: int) -> list[str]:
    """The table, most costly type first; rows are written a batch at a time, so only their sum has a meaning."""
    every = total(costs)
    lines = [f"{'record':<20}{'records':>8}{'per s':>9}{'read':>8}{'handler':>8}{'encode':>8}"]
    for name, cost in [*sorted(costs.items(), key=lambda one: -one[1].fold), ("all", every)]:
        shown = "".join(f"{share / cost.fold:>8.0%}" for share in (cost.read, cost.handler, cost.encode))
        lines.append(f"{name:<20}{cost.records:>8}{cost.records / cost.fold * 1e9:>9,.0f}{shown}")
    lines += [
        f"bare loop that decodes: {every.records / bare_ns * 1e9:,.0f} records/s; the fold takes "
        f"{every.fold / bare_ns:.1f} times as long, with its rows {every.total / bare_ns:.1f} times",
    ]
    return lines


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description="cost of the fold by record type and step")
    parser.add_argument("--versions", type=int, default=20, help="policy versions to make")
    parser.add_argument("--groups", type=int, default=25, help="groups of trajectories a version")
    parser.add_argument("--rounds", type=int, default=3, help="the quickest is taken")
    asked = parser.parse_args()
    log = Log()
    for _ in LongRun(log, groups=asked.groups).versions(asked.versions):
        pass
    gc.disable()  # a collection would be counted to whatever step it falls into
    quickest = min(bare(log.records) for _ in range(asked.rounds))
    print("\n".join(report(quickest_of([measure(log.records) for _ in range(asked.rounds)]), quickest)))


if __name__ == "__main__":
    main()
