"""Checks of the processor: where the fold stands beside group, log and decisions, and who folds."""

from collections.abc import Iterator

from rollbook.infra.doctor.facts import Facts, Finding, Level
from rollbook.infra.settings import Topic

_MUCH_LAG = 100_000
_LONG_RESTORE_RECORDS = 200_000
_DIRTY_RATIO = 5


def positions(facts: Facts) -> Iterator[Finding]:
    """The ledger says where the fold stands; decisions, group offsets and the log must agree with it."""
    lifecycle = facts.settings.topic(Topic.LIFECYCLE)
    for part in facts.ledger:
        p, about = part.partition, f"partition {lifecycle}:{part.partition}"
        stands = part.next_offset or 0
        committed = facts.before.committed.get(p, -1)
        resting = committed == facts.after.committed.get(p, -1)  # else the processor is at work, and both move
        if committed >= 0 and resting and committed != stands:
            told = (
                f"the group's offset is {committed}, but the ledger stands at {stands}: somebody reset one of them, or "
                "a broker died within a transaction"
            )
            remedy = (
                "start the processor: where the decisions agree with the ledger its next transaction brings the group "
                "in line, else it stops and says what to do"
            )
            yield Finding(Level.UNSAFE, "positions", about, told, remedy)
        if part.decided != stands and (resting or part.decided < stands):
            told = (
                f"decisions go to {part.decided}, but the ledger stands at {stands}: one of them was changed by hand, "
                "or a broker lost markers of a transaction in one of them only"
            )
            remedy = "no processor opens the partition so; see where a transaction is open, and restore the topic"
            yield Finding(Level.UNSAFE, "positions", about, told, remedy)
        first, end = facts.first.get((Topic.LIFECYCLE, p), 0), facts.after.high.get((Topic.LIFECYCLE, p), 0)
        if not part.same_log:
            told = f"the record at offset {part.decided - 1} is not the one that was decided: the topic was made anew"
            yield Finding(Level.UNSAFE, "positions", about, told, "set ROLLBOOK_TOPIC_PREFIX to a new prefix")
        elif end < stands:
            told = f"the log ends at {end}, but the ledger stands at {stands}: the topic was made anew"
            yield Finding(Level.UNSAFE, "positions", about, told, "set ROLLBOOK_TOPIC_PREFIX to a new prefix")
        elif first > stands:
            told = f"the log begins at {first}, but the ledger stands at {stands}: records were deleted undecided"
            yield Finding(Level.UNSAFE, "positions", about, told, "set ROLLBOOK_TOPIC_PREFIX to a new prefix")
    for topic in (Topic.LIFECYCLE, Topic.DECISIONS):
        for p in range(facts.partitions):
            first = facts.first.get((topic, p), 0)
            if first > 0:
                about = f"partition {facts.settings.topic(topic)}:{p}"
                told = f"its first {first} records are gone: no audit and no explanation from the first record on"
                remedy = "set retention as in the table (`rollbook topics create --repair`); what is gone is gone"
                yield Finding(Level.UNSAFE, "retention", about, told, remedy)


def progress(facts: Facts) -> Iterator[Finding]:
    """Whether somebody decides, and whether readers can see it."""
    for part in facts.ledger:
        p = part.partition
        about = f"partition {facts.settings.topic(Topic.LIFECYCLE)}:{p}"
        waiting = facts.after.high.get((Topic.LIFECYCLE, p), 0) - max(
            part.next_offset or 0, facts.after.committed.get(p, 0)
        )
        owned = any(p in member.partitions for member in facts.after.members)
        if waiting > 0 and not owned:
            told = f"{waiting} records wait, and no processor holds the partition"
            yield Finding(Level.WARNING, "progress", about, told, "start one with `rollbook processor run`")
        elif waiting > _MUCH_LAG:
            told = f"{waiting} records wait for the processor"
            yield Finding(Level.WARNING, "progress", about, told, "run more processors: each takes some partitions")
        if part.records > _LONG_RESTORE_RECORDS and part.records > _DIRTY_RATIO * part.rows:
            told = f"a restore reads {part.records} records for {part.rows} rows: the cleaner does not keep up"
            remedy = "see log-cleaner.log of the broker; give it more log.cleaner.threads"
            yield Finding(Level.WARNING, "cleaner", f"partition {facts.settings.topic(Topic.LEDGER)}:{p}", told, remedy)


def open_transactions(facts: Facts) -> Iterator[Finding]:
    """Where nothing moved between two looks, though something lies behind what can be read."""
    for (topic, partition), stable in sorted(facts.after.stable.items()):
        key = (topic, partition)
        stood = facts.before.stable.get(key) == stable and facts.before.high.get(key, 0) > stable
        if stood and stable < facts.after.high.get(key, 0):
            told = f"a transaction is open at offset {stable}, and nothing behind it can be read"
            remedy = "start a processor: it ends what is open in its partitions; if it stays, see " + (
                "the header `by` of the record there, and start the processor of that name"
                if topic is Topic.DEAD_LETTERS
                else "`kafka-transactions.sh find-hanging`"
            )
            yield Finding(
                Level.WARNING, "progress", f"partition {facts.settings.topic(topic)}:{partition}", told, remedy
            )


def members(facts: Facts) -> Iterator[Finding]:
    """Who is in the processor's group."""
    prefix = facts.settings.topic_prefix
    about = f"group {prefix}processor"
    for member in facts.after.members:
        if not member.instance.startswith(prefix):
            told = f"{member.instance or member.member_id} at {member.client_host} is no processor of this prefix"
            remedy = "stop that client, or give it a group of its own: it takes partitions that nobody folds then"
            yield Finding(Level.UNSAFE, "members", about, told, remedy)
    before = {member.instance: member for member in facts.before.members if member.instance}
    for member in facts.after.members:
        earlier = before.get(member.instance)
        if earlier is not None and earlier.member_id != member.member_id:
            told = (
                f"{member.instance.removeprefix(prefix)} was replaced while we looked (at {earlier.client_host}, then "
                f"{member.client_host}): two processes of one name fence each other"
            )
            remedy = "unless you have just started it again, give each its own `rollbook processor run --name`"
            yield Finding(Level.WARNING, "members", about, told, remedy)
    idle = [member.instance.removeprefix(prefix) for member in facts.after.members if not member.partitions]
    if len(facts.after.members) > facts.partitions > 0:
        told = f"{len(facts.after.members)} processors share {facts.partitions} partitions: {', '.join(idle)} stand by"
        yield Finding(Level.WARNING, "members", about, told, "fine as a reserve; else stop those that stand by")
