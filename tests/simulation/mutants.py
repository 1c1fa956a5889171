"""Each numbered point of the loop deleted or moved: the simulation must notice, and says at which seed.

    python -m rollbook.tests.simulation.mutants --seeds 1000

A mutant is the host's own code with pieces of text replaced, so that one whose text is gone fails loudly.
"""

import argparse
import inspect
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from rollbook.processors.host import batch, errors, membership, writing
from rollbook.processors.host.loop import Host
from rollbook.processors.host.restore import Opening
from rollbook.processors.host.takeover import Takeover
from rollbook.processors.host.transaction import Transactions
from rollbook.tests.simulation.invariants import Violation
from rollbook.tests.simulation.world import simulate

Edit = tuple[Callable[..., Any], str, str]
"""A function of the host, a text in it, and what stands in its place."""

METADATA = "metadata = self._consumer.consumer_group_metadata()"
WRITE = "write(self._transactions, self._settings, self._ledgers, batch, changes)"
SEND = "self._transactions.send_offsets(offsets, metadata)"
COMMIT = "self._transactions.commit()"
BEGIN = "self._transactions.begin()"
KEEP = "self._ledgers[partition].journal.keep()"
KEEP_ALL = "[self._ledgers[p].journal.keep() or self._next.update({p: o}) for p, o in batch.next_offsets.items()]"
FOLD = "batch = fold_batch(self._waiting, self._ledgers, self._clock)"
UNKNOWN = "    # 7. A time-out"
RESTORED = (
    "if decided == restored.next_offset and (committed is None or committed in (NEVER, decided)):"
    "\n            return restored"
)
OPEN = "self._open_or_stop(consumer, source.partition) for source in partitions"
OLD = "self.__dict__.setdefault('old', {})"
OPEN_NEW = (
    f"(TopicPartition(self._lifecycle, p, self._next[p]) if (p := source.partition) in {OLD} "
    f"and self._ledgers.update({{p: {OLD}[p]}}) is None else self._open_or_stop(consumer, p)) for source in partitions"
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`point` is that of the design's section on the processor."""

    point: int
    name: str
    edits: tuple[Edit, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The host with the change, as long as the block lasts."""
        with ExitStack() as undo:
            for function in dict.fromkeys(edit[0] for edit in self.edits):
                assert isinstance(function, FunctionType), "only functions have code"
                undo.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = self._changed(function)
            yield

    def _changed(self, function: FunctionType) -> Any:
        source = textwrap.dedent(inspect.getsource(function))
        for of, old, new in self.edits:
            if of is function:
                assert old in source, f"{self.name}: {function.__qualname__} has no {old!r} any more"
                source = source.replace(old, new)
        names: dict[str, Any] = {}
        exec(compile(source, f"<{self.name}>", "exec"), function.__globals__, names)
        return names[function.__name__].__code__


_TABLE: tuple[tuple[int, str, *tuple[Edit, ...]], ...] = (
    (
        1,
        "each process has a transactional id of its own",
        (Transactions.__init__, "self.name = name", "name = self.name = f'{name}-{clock.monotonic()}'"),
    ),
    (
        1,
        "a fenced process goes on",
        (Host._recover, "raise self._fenced()", "pass"),
        (Host._take, "raise self._fenced()", "return"),
    ),
    (2, "the committed offset is not waited for", (Opening._read, "self._committed(group)", "-1")),
    (
        2,
        "restored to the last stable offset only, while something is open",
        (Opening._rebuild, "[(_, end)]", "[(end, _)]"),
        (Opening._read, "self._takeover.settle(group)", "pass"),
    ),
    (
        2,
        "open and aborted records are restored",
        (Opening._rebuild, "self._kafka.reader()", "self._kafka.reader(committed=False)"),
    ),
    (
        2,
        "group offsets are the truth",
        (Opening.open, RESTORED, "return Restored(restored.ledger, max(0, committed), restored.rows)"),
    ),
    (
        2,
        "the open transaction of a dead owner is not ended",
        (Takeover.press, "owner is None", "True"),
    ),
    (2, "what hangs is not ended", (Takeover.press, "self._end(self._taken[owner], group)", "pass")),
    (2, "a partition is written to where decisions hang", (Opening._read, "self._takeover.settle(group)", "pass")),
    (
        3,
        "nobody looks whether the last commit can be seen",
        (Host._look_at_commits, "not self._stand", "False and self._stand"),
    ),
    (3, "begin before the fold", (Host._process, FOLD, f"{BEGIN}; {FOLD}")),
    (
        3,
        "group metadata and callbacks inside the transaction",
        (Host._transact, METADATA, "metadata = None"),
        (Host._transact, SEND, f"self._consumer.poll(0); {METADATA}; {SEND}"),
    ),
    (3, "no offsets in the transaction", (Host._transact, SEND, "pass")),
    (
        3,
        "the offsets in a transaction of their own, afterwards",
        (Host._transact, SEND, f"{COMMIT}; {BEGIN}; {SEND}"),
    ),
    (
        3,
        "the offsets in a transaction of their own, before",
        (Host._transact, WRITE, "pass"),
        (Host._transact, COMMIT, f"{COMMIT}; {BEGIN}; {WRITE}; {COMMIT}"),
    ),
    (3, "the batch stands before the commit", (Host._transact, COMMIT, f"{KEEP_ALL}; {COMMIT}")),
    (3, "the batch does not stand after the commit", (Host._transact, KEEP, "pass")),
    (3, "the ledger is not written with the decisions", (writing.write, "in changed:", "in ():")),
    (3, "no Position is written", (writing.write, "in batch.next_offsets.items():", "in ():")),
    (
        3,
        "what is delivered twice is taken twice",
        (Host._keep, "if offset >= self._next[partition] and offset > last:", "if True:"),
    ),
    (4, "the fold is not undone after an abort", (Host._rewind, "ledger.journal.undo()", "pass")),
    (4, "no seek after an abort", (Host._rewind, "self._seek()", "pass")),
    (4, "what waits is kept after an abort", (Host._rewind, "self._forget_waiting()", "pass")),
    (
        4,
        "an abort whose markers were lost is gone on from",
        (Host._recover, "self._stand(touched)", "True"),
    ),
    (
        4,
        "an abort takes a hidden commit back",
        (Takeover.stands_at, "or self._seen() != (next_offset, next_offset)", ""),
    ),
    (4, "the transaction is not aborted", (Host._recover, "self._transactions.abort()", "pass")),
    (
        5,
        "what waits of a released partition is kept",
        (
            Host._forget,
            "self._waiting = deque(message for message in self._waiting if message.partition() not in gone)",
            "pass",
        ),
    ),
    (
        5,
        "the state of a lost partition is kept",
        (Host._lost, "self._released(consumer, partitions)", "consumer.incremental_unassign(partitions)"),
    ),
    (
        5,
        "a partition that comes back is not restored",
        (
            Host._forget,
            "self._ledgers.pop(partition, None)",
            f"{OLD}.update({{p: self._ledgers.pop(p) for p in gone & self._ledgers.keys()}})",
        ),
        (Host._assigned, OPEN, OPEN_NEW),
    ),
    (
        5,
        "joined once",
        (
            membership.Introduction.make,
            "    self._consumer.subscribe(",
            "    return\n    self._consumer.subscribe(",
        ),
    ),
    (
        5,
        "what the first join was given is kept",
        (membership.Introduction.make, "while self._consumer.assignment() and turn():", "while False:"),
    ),
    (6, "what can be aborted stops the process", (errors.action_for, "return row.abortable", "return Action.STOP")),
    (
        6,
        "a partition goes on behind a record that cannot be folded",
        (Host._keep, "if partition in self._stopped:", "if False:"),
        (Host._stop_partition, "self._consumer.pause(", "tuple("),
    ),
    (
        6,
        "a record that cannot be folded is passed over",
        (
            batch.fold_batch,
            "batch.failure = Failure(partition, offset, error)\n            break",
            "waiting.popleft()\n            continue",
        ),
    ),
    (6, "no dead letter", (writing.write, "_dead_letter(out, settings, message, folded.undecodable)", "pass")),
    (
        7,
        "a time-out is taken for a commit",
        (
            Host._recover,
            UNKNOWN,
            "    if action is Action.UNKNOWN_OUTCOME:\n        self._transactions.start_over()\n"
            f"        return [one.journal.keep() for one in self._ledgers.values()] and None\n{UNKNOWN}",
        ),
    ),
    (
        7,
        "a time-out is taken for an abort",
        (
            Host._recover,
            UNKNOWN,
            "    if action is Action.UNKNOWN_OUTCOME:\n        self._transactions.start_over()\n"
            f"        return self._rewind()\n{UNKNOWN}",
        ),
    ),
    (
        7,
        "after a time-out the same producer goes on",
        (Host._start_over, "self._transactions.start_over()", "pass"),
    ),
    (
        7,
        "after a time-out the state is kept",
        (Host._start_over, "self._open_or_stop(self._consumer, partition)", "self._ledgers[partition].journal.keep()"),
    ),
    (
        7,
        "after a time-out the state is undone, not restored",
        (Host._start_over, "self._open_or_stop(self._consumer, partition)", "self._ledgers[partition].journal.undo()"),
    ),
)

MUTANTS = tuple(Mutant(point, name, tuple(edits)) for point, name, *edits in _TABLE)


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
            print(f"{mutant.point} {mutant.name}: {where}, {time.monotonic() - began:.0f} s: {how[:110]}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
