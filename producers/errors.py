"""What can go wrong for a client, by who acts: publish again, ask again, fix the call, start the learner anew."""

from rollbook.processors.reasons import MEANING, Reason
from rollbook.producers.remedies import RELOAD, remedy_of
from rollbook.schemas.errors import AnswerNo, BadInput, EnvironmentFault
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.run import Enforcement


class QueueFull(EnvironmentFault):
    """More is waiting for the broker than the client may hold: the event was not taken."""


class DeliveryFailed(EnvironmentFault):
    """Something published did not reach the broker, or its acknowledgement did not reach us."""


class ClientBroken(EnvironmentFault):
    """The client can do no more, however long one waits: make a new one."""


class DecisionTimeout(EnvironmentFault):
    """A command was sent and its decision not read in time: it may have been accepted."""


class DeliveryBroken(DeliveryFailed, ClientBroken):
    """Something did not arrive, and the client can publish nothing more."""


class PayloadLost(EnvironmentFault):
    """A record that a reference names is no longer in its topic."""


class ForkedClient(BadInput):
    """A client used in a forked child: its threads and connections stayed in the parent."""


class ClientClosed(BadInput):
    """A client used after it was closed."""


class NotTrainable(BadInput):
    """The call would train on a row that the ledger has not released for this update."""


class OutOfOrder(BadInput):
    """The call cannot be made in the state that the learner or the update is in."""


class WrongEnforcement(BadInput):
    """The client gates and the run only observes, or the other way round."""

    def __init__(self, run_id: str, enforcement: Enforcement) -> None:
        fit = "Trainer" if enforcement is Enforcement.GATE else "ObservingTrainer"
        super().__init__(
            f"run {run_id} was configured with enforcement {enforcement.value}, which this client is not made for: use "
            f"{fit}, or a run with the other enforcement"
        )


class Refused(AnswerNo):
    """The ledger decided no. `decision` is the whole evidence."""

    def __init__(self, decision: Decision, remedy: str = "") -> None:
        self.decision = decision
        remedy = remedy or remedy_of(decision.reason)
        # By name: where it is a StartAnew as well, that one's remedy would follow this one.
        AnswerNo.__init__(self, f"{describe(decision)}; {remedy}" if remedy else describe(decision))


class NothingTaken(Refused):
    """No trajectory passed: ask again when more has been rewarded."""


class StartAnew(AnswerNo):
    """The learner's weights and the ledger may disagree: export nothing and exit.

    A new process starts the learner from what the ledger knows, which takes back what this one left undecided.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}: export no checkpoint and no policy, exit, and start the learner anew")


class UpdateEnded(Refused):
    """The update is over, by its lease or by an operator: its rows may be another's by now."""


class LearnerFenced(Refused, StartAnew):
    """A newer process holds the learner, or an operator fenced it."""

    def __init__(self, decision: Decision) -> None:
        Refused.__init__(self, decision)


class EpochConflict(Refused, StartAnew):
    """The learner was started by someone else since. `current_epoch` is what the next process must expect."""

    def __init__(self, decision: Decision) -> None:
        self.current_epoch = decision.learner.epoch if decision.learner is not None else None
        Refused.__init__(
            self,
            decision,
            f"the current epoch is {self.current_epoch}, somebody else started the learner: {RELOAD}, and starts with "
            "that expected_epoch",
        )


class UpdateInDoubt(Refused, StartAnew):
    """The update is started, so that its rows may be in the weights: it cannot be aborted by its learner."""

    def __init__(self, decision: Decision) -> None:
        Refused.__init__(self, decision)


def describe(decision: Decision) -> str:
    """A refusal on one line: record, subject, position, outcome, reason, meaning, detail and the first item."""
    known = decision.reason in Reason.__members__.values()
    meaning = f": {MEANING[Reason(decision.reason)].rstrip('.')}" if known else ""
    detail = f" ({decision.detail})" if decision.detail else ""
    source = f"lifecycle:{decision.source.partition}@{decision.source.offset}"
    record = decision.record_type or "record"
    return (
        f"{record}{_subject(decision)} at {source} was {decision.outcome.value}, {decision.reason}{meaning}{detail}"
        f"{_first_item(decision)}"
    )


def _subject(decision: Decision) -> str:
    subject = decision.subject
    if subject is not None and subject.kind != "update":
        return f" of {subject.kind} {subject.id}"
    return f" of update {decision.update_id}" if decision.update_id else f" of run {decision.run_id}"


def _first_item(decision: Decision) -> str:
    """The first trajectory that the record was refused for, of how many."""
    refused = [item for item in decision.items if item.reason == decision.reason] or [
        item for item in decision.items if item.reason not in (Reason.ALL_OR_NONE, Reason.DUPLICATE)
    ]
    if not refused:
        return ""
    first = refused[0]
    reason = "" if first.reason == decision.reason else f", {first.reason}"
    state = f", {first.state_after} at revision {first.revision_after}" if first.state_after else ""
    count = f", the first of {len(refused)}" if len(refused) > 1 else ""
    return f" [trajectory {first.trajectory_id}{reason}{state}{count}]"


def error_of(decision: Decision) -> Refused:
    """The typed error of a decision that is a no."""
    by_reason: dict[str, type[LearnerFenced | EpochConflict | UpdateInDoubt | UpdateEnded | NothingTaken]] = {
        Reason.LEARNER_FENCED: LearnerFenced,
        Reason.EPOCH_CONFLICT: EpochConflict,
        Reason.UPDATE_IN_DOUBT: UpdateInDoubt,
        Reason.UPDATE_ENDED: UpdateEnded,
        Reason.NOTHING_TAKEN: NothingTaken,
    }
    kind = by_reason.get(decision.reason)
    return Refused(decision) if kind is None else kind(decision)
