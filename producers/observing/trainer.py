"""The client of a trainer in a run that observes: the training never waits for it and never fails because of it."""

import time
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from weakref import WeakValueDictionary

from rollbook.infra.settings import Settings
from rollbook.producers import given
from rollbook.producers.arrays import Whole, real
from rollbook.producers.clients.client import Options, checked
from rollbook.producers.clients.trainer import Trainer
from rollbook.producers.identity import new_id, now_ms
from rollbook.producers.observing.facts import Facts
from rollbook.producers.observing.observed import ObservedUpdate
from rollbook.producers.observing.observer import Observer
from rollbook.producers.reading.epochs import current_epoch
from rollbook.producers.reading.verdicts import Verdicts
from rollbook.producers.redaction.identifiers import check_identifiers, check_update
from rollbook.producers.sending.outbox import Counters
from rollbook.producers.updates.renewal import RENEWALS_A_LEASE
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import Header, PolicyRef, Source, SourceKind
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Checkpoint, CheckpointSaved

_IDLE_S = 1.0


class ObservingTrainer:
    """A learner of a run with `enforcement: observe`: what it reports is taken as a fact, and judged afterwards.

    A broker that is down costs a warning and events that are counted as lost (`counters`), from the constructor to the
    end of the block; so does what the ledger refuses, `learner_fenced` above all: it counts for nothing, and is counted
    as refused. In a run that gates nothing is recorded. It takes the learner over from whoever held it, unless
    `expected_epoch` says whom it follows.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        learner_id: str,
        *,
        checkpoint: Checkpoint | None = None,
        expected_epoch: int | None = None,
        incarnation: str | None = None,
        lease_ms: int = 0,
        rank: int = 0,
        options: Options | None = None,
    ) -> None:
        # A name that the contract refuses is refused here, before the training begins.
        source = Source(kind=SourceKind.TRAINER, id=learner_id)
        check_identifiers(Header(run_id=run_id, event_id=new_id(), occurred_at=now_ms(), source=source))
        self._settings = given.settings(settings)
        self._run_id = run_id
        self._learner_id = learner_id
        self._checkpoint = checkpoint
        self._expected_epoch = expected_epoch
        self._incarnation = incarnation or new_id()
        self._renew_every_s = given.whole(lease_ms, "lease_ms") / 1000 / RENEWALS_A_LEASE
        self._rank = given.whole(rank, "rank")
        self._options = checked(options)
        self._verdicts = Verdicts()
        # An update that nobody holds any more is over, whether it was committed or not: it is not renewed for ever.
        self._updates: WeakValueDictionary[str, Facts] = WeakValueDictionary()
        self._observer = Observer(
            self._open,
            self._verdicts,
            max_events=self._options.max_events,
            max_bytes=self._options.max_bytes,
            on_error=self._options.on_error,
            idle=self._renew,
            idle_s=min(_IDLE_S, self._renew_every_s / 2 or _IDLE_S),
        )
        self._observer.begin()

    def update(self, rollout_id: Whole, *, update_id: str | None = None) -> ObservedUpdate:
        """The update of a training iteration, to be used as a context manager; its id is never used again. Raises
        ContractViolation, and nothing else, for what can name no update."""
        update_id = new_id() if update_id is None else update_id
        number = real(rollout_id)
        check_update(update_id, number)
        facts = Facts(update_id, number, self._rank)
        self._updates[facts.update_id] = facts
        return ObservedUpdate(self._observer, facts)

    def checkpoint_saved(self, checkpoint_id: str, digest: str, policy: PolicyRef) -> None:
        """The weights as they are now are on disk under this id."""
        self._observer.tell(lambda trainer: self._saved(trainer, checkpoint_id, digest, policy))

    @property
    def counters(self) -> Counters:
        """Records published, delivered and lost, where what was never taken counts as lost; and those that the ledger
        refused, which count for nothing."""
        return self._observer.counters

    def close(self, deadline_s: float | None = None) -> None:
        """Give what is queued so long to arrive; what does not is counted as lost."""
        deadline_s = self._options.close_timeout_s if deadline_s is None else deadline_s
        self._observer.close(given.seconds(deadline_s, "deadline_s"))

    def __enter__(self) -> "ObservingTrainer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # From here on in the observing thread.

    def _open(self) -> Trainer:
        """A started trainer. Its own errors come to the observer, as those of the queue do."""
        trainer = Trainer(
            self._settings,
            self._run_id,
            self._learner_id,
            incarnation=self._incarnation,
            rank=self._rank,
            options=replace(self._options, on_error=self._observer.warn),
            enforcement=Enforcement.OBSERVE,
            verdicts=self._verdicts,
        )
        try:
            epoch = self._expected_epoch
            if epoch is None:
                epoch = current_epoch(self._settings, self._run_id, self._learner_id)
            trainer.start(self._checkpoint, expected_epoch=epoch)
        except BaseException:
            with suppress(RollbookError):
                trainer.close(0.0)
            raise
        return trainer

    def _renew(self, trainer: Trainer) -> None:
        now = time.monotonic()
        for facts in list(self._updates.values()):
            if not self._renew_every_s or facts.last_sent is None or facts.is_over:
                continue
            if now - facts.last_sent > self._renew_every_s:
                facts.renew(trainer)

    def _saved(self, trainer: Trainer, checkpoint_id: str, digest: str, policy: PolicyRef) -> None:
        record = CheckpointSaved(
            header=trainer.header(),
            learner=trainer.learner,
            checkpoint=Checkpoint(id=checkpoint_id, digest=digest),
            last_update_id=trainer.last_update_id,
            policy=policy,
            chain=trainer.decisions.chain,
        )
        trainer.outbox.publish(lambda _: record)
