"""The pairs of records whose order matters, and why: ONE table. Two records that are about the same thing of the kind
named may end differently when they change places; all others end alike in any order.

Facts wait for their turn, so most that workers and services say needs no order: what is here are commands, which are
decided where they stand, and the few facts that are refused, and lost, when they come too early or find no room.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rollbook.tests.processors.order.steps import Kind, Step


@dataclass(frozen=True, slots=True)
class Pair:
    """Two record types, the kind of thing that both are about, and why their order matters."""

    records: frozenset[str]
    through: Kind
    why: str

    def holds(self, one: Step, other: Step) -> bool:
        """Whether the two steps are such a pair."""
        if self.records != {one.record, other.record}:
            return False
        return any(kind is self.through for kind, _ in one.about & other.about)

    def __str__(self) -> str:
        return f"{' with '.join(sorted(self.records))} through {self.through.value}"


def _pairs() -> Iterator[Pair]:
    def of(record: str, others: str, through: Kind, why: str) -> Iterator[Pair]:
        return (Pair(frozenset({record, other}), through, why) for other in others.split())

    def among(records: str, through: Kind, why: str) -> Iterator[Pair]:
        names = records.split()
        for at, record in enumerate(names):
            yield from of(record, " ".join(names[at:]), through, why)

    # the run
    yield from of(
        "RunConfigured",
        "GenerationContract Dispatched Generated GenerationFailed RewardReady RewardFailed PolicyPrepared "
        "PolicyCommitted ActivationAck LearnerStarted",
        Kind.RUN,
        "before its first configuration a run refuses everything; a later one changes pins, rooms and limits",
    )
    yield from of(
        "RunConfigured",
        "Reserve Activate",
        Kind.RUN,
        "an update is judged by the limits of its first Reserve, an activation by the workers required at the time",
    )
    yield from of("RunConfigured", "RunConfigured", Kind.RUN, "of two with one version the first one stands")
    yield from of(
        "RunClosed",
        "RunConfigured Activate LearnerStarted",
        Kind.RUN,
        "what comes after the end is refused: the last configuration and the active pointer stay as they were",
    )
    # one trajectory
    yield from of("GenerationContract", "Generated", Kind.CONTRACT, "a contract counts once it is registered")
    yield from of("Generated", "Generated GenerationFailed", Kind.TRAJECTORY, "of two accounts the first one stands")
    yield from of("RewardReady", "RewardReady", Kind.TRAJECTORY, "of two rewards the first one stands")
    for taken_out in ("Discarded", "Quarantine"):
        yield from of(
            taken_out,
            "Dispatched Generated GenerationFailed",
            Kind.TRAJECTORY,
            "what is not known, or has ended, cannot be taken out of use",
        )
        yield from of(
            taken_out,
            "Admit Abort LeaseExpired LearnerStarted Commit",
            Kind.TRAJECTORY,
            "what an update holds cannot be taken out of use; what it gives back can",
        )
    yield from of(
        "RewardReady",
        "Discarded Quarantine",
        Kind.UPDATE,
        "the reward consumes what an observed trainer has trained on already, unless it was taken out of use first",
    )
    yield from of(
        "RewardReady",
        "Discarded Quarantine",
        Kind.APART,
        "a reward by an unpinned rule takes a trajectory out of its group; one that is out of use stays in it",
    )
    yield from of("Discarded", "Quarantine", Kind.TRAJECTORY, "what has ended cannot end again")
    yield from of(
        "PolicyAbandoned",
        "Generated GenerationFailed",
        Kind.POLICY,
        "a generation that began by a policy that is given up ends there; one that was over is judged by its spans",
    )
    yield from of(
        "Dispatched",
        "Generated GenerationFailed",
        Kind.TRAJECTORY,
        "where a generation began by a policy that is given up it ends there, and its outcome comes too late",
    )
    # who gets it
    yield from of(
        "Reserve",
        "Generated GenerationFailed RewardReady RewardFailed",
        Kind.TRAJECTORY,
        "only what is rewarded can be taken, and by a claim only once its group waits for nothing",
    )
    yield from of("Reserve", "Discarded Quarantine Reserve", Kind.TRAJECTORY, "the first one to take it has it")
    yield from of(
        "Reserve",
        "Admit Abort LeaseExpired LearnerStarted Commit",
        Kind.TRAJECTORY,
        "what an update gives back, or never took since it was ended, can be taken by others",
    )
    yield from of("Reserve", "PolicyPrepared", Kind.POLICY, "the learner's policy must be prepared")
    yield from of("Reserve", "Activate", Kind.POLICY, "every span's policy must have been active")
    yield from of("Admit", "PolicyPrepared", Kind.POLICY, "the learner's policy must be prepared")
    yield from of("Reserve", "Abort LeaseExpired", Kind.ORDINAL, "a learner's ordinal counts its open updates before")
    # one update
    yield from of("Abort", "Abort LeaseExpired Commit", Kind.UPDATE, "the first one ends the update, in its own way")
    yield from of("Abort", "Admit", Kind.UPDATE, "of an update that has ended nothing is judged")
    yield from of("Abort", "UpdateStarted", Kind.UPDATE, "an operator who ends what has started fences the learner")
    yield from of("LeaseExpired", "Reserve Admit Renew", Kind.UPDATE, "a sign of life renews the lease")
    yield from of("LeaseExpired", "UpdateStarted", Kind.UPDATE, "after the start an expired lease only raises a doubt")
    yield from of(
        "RecordingSealed",
        "UpdateStarted Abort LearnerStarted",
        Kind.UPDATE,
        "recordings belong to an update that was started and was not undone",
    )
    yield from of("RecordingSealed", "Commit", Kind.UPDATE, "in observe mode an update may be committed unheard of")
    # one learner
    yield from of("LearnerStarted", "LearnerStarted", Kind.LEARNER, "the epoch is a compare-and-set")
    yield from of(
        "LearnerStarted",
        "Admit Commit Abort CheckpointSaved",
        Kind.LEARNER,
        "afterwards the older epoch is fenced; before, what it did is undone",
    )
    # one policy
    yield from of(
        "PolicyPrepared", "PolicyPrepared", Kind.POLICY, "of two the first one stands; a parent must be known"
    )
    yield from of(
        "PolicyAbandoned", "PolicyPrepared", Kind.POLICY, "what is unknown cannot be given up, what is, not restored"
    )
    yield from of(
        "Activate",
        "PolicyPrepared PolicyCommitted PolicyAbandoned Activate",
        Kind.POLICY,
        "only what is prepared, whole, newer than the active one and not given up can become active",
    )
    yield from of("Activate", "ActivationAck", Kind.WORKER, "each required worker must serve it by then")
    yield from of(
        "Activate", "Commit LearnerStarted", Kind.UPDATE, "all updates in its weights must stand committed by then"
    )
    # rooms
    yield from among(
        "Generated Dispatched", Kind.ROOM, "above max_live a trajectory is refused: the first one has the place"
    )
    yield from of("Discarded", "Generated Dispatched", Kind.ROOM, "what is taken out of use gives up its place")
    yield from among(
        "RewardReady RewardFailed",
        Kind.ROOM,
        "above max_pending the fact that waits longest gives way",
    )
    yield from of("PolicyCommitted", "PolicyCommitted", Kind.ROOM, "what a policy waits for gives way to nothing")
    yield from of(
        "Generated", "RewardReady RewardFailed PolicyCommitted", Kind.ROOM, "what comes frees the place of what waited"
    )
    yield from of(
        "PolicyPrepared",
        "RewardReady RewardFailed PolicyCommitted",
        Kind.ROOM,
        "what comes frees the place of what waited",
    )
    yield from of(
        "Activate",
        "Generated Dispatched RewardReady RewardFailed",
        Kind.ROOM,
        "a floor that rises drops facts that wait for what is below it, and forgets what failed in a group that nobody "
        "lives of yet",
    )
    yield from of(
        "Activate",
        "Reserve",
        Kind.ROOM,
        "what is reserved stays when the floor rises over it, what is not goes offline",
    )


PAIRS: tuple[Pair, ...] = tuple(_pairs())


def explaining(one: Step, other: Step) -> list[Pair]:
    """The rows that say why the order of two steps may matter."""
    return [pair for pair in PAIRS if pair.holds(one, other)]
