"""Each numbered point of the loop deleted or moved: the simulation must notice, and says at which seed.

    python -m rollbook.tests.simulation.mutants --seeds 1000

A mutant is the host's own code with one piece of text replaced, so that one whose text is gone fails loudly.
"""

import argparse
import inspect
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from rollbook.processors.host import batch, clerk, errors, loop, membership, restore, transaction
from rollbook.tests.simulation.invariants import Violation
from rollbook.tests.simulation.world import simulate

Host, Opening, Transactions = loop.Host, restore.Opening, transaction.Transactions


@dataclass(frozen=True, slots=True)
class Mutant:
    """`function` with each `old` text replaced by its `new` one. `point` is that of the design's section 6."""

    point: str
    name: str
    function: Any
    changes: tuple[tuple[str, str], ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The host with the change, as long as the block lasts."""
        function: FunctionType = inspect.unwrap(self.function)
        source = textwrap.dedent(inspect.getsource(function))
        for old, new in self.changes:
            assert old in source, f"{self.name}: {function.__qualname__} has no {old!r} any more"
            source = source.replace(old, new)
        names: dict[str, Any] = {}
        exec(compile(source, f"<{self.name}>", "exec"), function.__globals__, names)
        before, function.__code__ = function.__code__, names[function.__name__].__code__
        try:
            yield
        finally:
            function.__code__ = before


METADATA = "metadata = self._consumer.consumer_group_metadata()"
SEND = "self._transactions.send_offsets(offsets, metadata)"
COMMIT = "self._transactions.commit()"
KEEP = "self._ledgers[partition].journal.keep()"
FOLD = "batch = fold_batch(self._waiting, self._ledgers, self._clock)"

MUTANTS = (
    Mutant(
        "1",
        "every process has a transactional id of its own",
        Transactions.__init__,
        (("self._name = name", "self._name = f'{name}-{id(self)}'"),),
    ),
    Mutant("1", "a fenced process goes on", Host._stop_if_fenced, (("raise self._fenced()", "pass"),)),
    Mutant(
        "2",
        "the committed offset is not waited for",
        Opening._read,
        (("committed = self._committed(group)", "committed = -1"),),
    ),
    Mutant(
        "2",
        "the committed offset is asked for after the restore",
        Opening._read,
        (
            (
                "committed = self._committed(group)\n    restored = self._restore()",
                "restored = self._restore()\n    committed = restored.next_offset if self._committed(group) else 0",
            ),
        ),
    ),
    Mutant("2", "restored to the last stable offset only", Opening._restore, (("stable=False", "stable=True"),)),
    Mutant(
        "2",
        "uncommitted records are restored",
        Opening._rebuild,
        (("self._kafka.reader()", "self._kafka.reader(committed=False)"),),
    ),
    Mutant(
        "2",
        "group offsets are the truth",
        Opening.open,
        (
            (
                "if committed < 0 or committed == restored.next_offset:\n            return restored",
                "return Restored(restored.ledger, max(0, committed), restored.rows)",
            ),
        ),
    ),
    Mutant("3", "begin before the fold", Host._process, ((FOLD, "self._transactions.begin(); " + FOLD),)),
    Mutant(
        "3",
        "group metadata after the wait",
        Host._transact,
        (
            (METADATA, "metadata = None"),
            (SEND, "self._consumer.poll(0); " + SEND.replace("metadata", "self._consumer.consumer_group_metadata()")),
        ),
    ),
    Mutant("3", "no offsets in the transaction", Host._transact, ((SEND, "pass"),)),
    Mutant(
        "3",
        "offsets in a transaction of their own, after it",
        Host._transact,
        (
            (SEND, "pass"),
            (COMMIT, f"{COMMIT}; self._transactions.begin(); {SEND}; {COMMIT}"),
        ),
    ),
    Mutant(
        "3",
        "offsets in a transaction of their own, before it",
        Host._transact,
        (
            ("self._write(batch, changes)", "pass"),
            (COMMIT, f"{COMMIT}; self._transactions.begin(); self._write(batch, changes); {COMMIT}"),
        ),
    ),
    Mutant(
        "3",
        "the batch is kept before the commit",
        Host._transact,
        (
            (
                COMMIT,
                f"[self._ledgers[p].journal.keep() or self._next.update({{p: o}}) for p, o in "
                f"batch.next_offsets.items()]; {COMMIT}",
            ),
        ),
    ),
    Mutant("3", "the batch is not kept after the commit", Host._transact, ((KEEP, "pass"),)),
    Mutant("3", "the ledger is not written with the decisions", Host._write, (("in changed:", "in ():"),)),
    Mutant(
        "3",
        "no Position is written",
        Host._write,
        (("self._transactions.produce(ledger, partition, position_key(partition), encode(position))", "pass"),),
    ),
    Mutant(
        "3",
        "what was delivered is taken again",
        Host._keep,
        (("if offset >= self._next[partition] and offset > last:", "if True:"),),
    ),
    Mutant("4", "the fold is not undone after an abort", Host._rewind, (("ledger.journal.undo()", "pass"),)),
    Mutant("4", "no seek after an abort", Host._rewind, (("self._seek(partition)", "pass"),)),
    Mutant("4", "what waits is kept after an abort", Host._rewind, (("self._forget_waiting()", "pass"),)),
    Mutant("4", "the transaction is not aborted", Host._recover, (("self._transactions.abort()", "pass"),)),
    Mutant(
        "5",
        "what waits of a released partition is kept",
        Host._released,
        (("self._waiting = deque(message for message in self._waiting if message.partition() not in gone)", "pass"),),
    ),
    Mutant(
        "5",
        "the state of a lost partition is kept",
        Host._lost,
        (("self._released(consumer, partitions)", "consumer.incremental_unassign(partitions)"),),
    ),
    Mutant(
        "5",
        "a partition that comes back is not restored",
        Host._assigned,
        (
            (
                "self._open(consumer, source.partition) for source in partitions",
                "(TopicPartition(self._lifecycle, p, self._next[p]) if (p := source.partition) in self._next "
                "and self._ledgers.setdefault(p, self.__dict__.setdefault('old', {}).get(p)) is not None "
                "else self._open(consumer, p)) for source in partitions",
            ),
            ("self._watched", "self.__dict__.setdefault('old', {}).update(self._ledgers); self._watched"),
        ),
    ),
    Mutant(
        "5",
        "joined once",
        membership.Introduction.make,
        (("self._consumer.subscribe(", "return\n    self._consumer.subscribe("),),
    ),
    Mutant(
        "6",
        "an abortable error is taken for a retriable one",
        errors.action_for,
        (("return row.abortable", "return Action.RETRY"),),
    ),
    Mutant(
        "6",
        "a fence is taken for a time-out",
        errors.action_for,
        (("return row.fatal", "return Action.UNKNOWN_OUTCOME"),),
    ),
    Mutant(
        "6",
        "what comes after a record that cannot be folded goes on",
        Host._keep,
        (("if partition in self._stopped:", "if False:"),),
    ),
    Mutant(
        "6",
        "a record that cannot be folded is passed over",
        batch.fold_batch,
        (
            (
                "batch.failure = Failure(partition, offset, error)\n            break",
                "waiting.popleft()\n            continue",
            ),
        ),
    ),
    Mutant("6", "no dead letter", Host._write, (("self._dead_letter(message, folded.undecodable)", "pass"),)),
    Mutant(
        "7",
        "a time-out is taken for a commit",
        Host._recover,
        (
            (
                "    # 7.",
                "    if action is Action.UNKNOWN_OUTCOME:\n        self._transactions.start_over()\n"
                "        [one.journal.keep() for one in self._ledgers.values()]\n        return\n    # 7.",
            ),
        ),
    ),
    Mutant(
        "7",
        "a time-out is taken for an abort",
        Host._recover,
        (
            (
                "    # 7.",
                "    if action is Action.UNKNOWN_OUTCOME:\n        self._transactions.start_over()\n"
                "        return self._rewind()\n    # 7.",
            ),
        ),
    ),
    Mutant(
        "7",
        "after a time-out the same producer goes on",
        Host._start_over,
        (("self._transactions.start_over()", "pass"),),
    ),
    Mutant(
        "7",
        "after a time-out the state is kept",
        Host._start_over,
        (("self._open(self._consumer, partition)", "self._ledgers[partition].journal.keep()"),),
    ),
    Mutant(
        "7",
        "after a time-out the state is rolled back, not restored",
        Host._start_over,
        (("self._open(self._consumer, partition)", "self._ledgers[partition].journal.undo()"),),
    ),
    Mutant(
        "7",
        "after a time-out the call is made again",
        errors.action_for,
        (
            (
                "row = row_for(error)",
                "row = row_for(error)\n    if error.code() == KafkaError._TIMED_OUT:\n        return Action.RETRY",
            ),
        ),
    ),
    Mutant(
        "lease",
        "timers go on after a restore",
        clerk.LeaseClerk.forget,
        (("self._timers.pop(partition, None)", "pass"),),
    ),
)


def found_at(mutant: Mutant, seeds: range) -> tuple[int, str]:
    """The first seed that fails with the mutant, and how; -1 when none does."""
    with mutant.applied():
        for seed in seeds:
            try:
                simulate(seed)
            except Violation as broken:
                return seed, str(broken)
    return -1, ""


def main() -> None:
    """Try all, or those whose name has the text; exit code 1 when one is not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--only", default="", help="part of a name")
    asked = parser.parse_args()
    missed = 0
    for mutant in MUTANTS:
        if asked.only in mutant.name:
            began = time.monotonic()
            seed, how = found_at(mutant, range(asked.seeds))
            missed += seed < 0
            where = f"seed {seed}" if seed >= 0 else "NOT FOUND"
            print(
                f"{mutant.point:5s} {mutant.name}: {where}, {time.monotonic() - began:.0f} s: {how[:110]}", flush=True
            )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
