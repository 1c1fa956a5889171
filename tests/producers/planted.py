"""Secrets planted in every call of every client that takes a text, a name or tokens; and where they are found again."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import cycle
from typing import get_args

import numpy as np

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import (
    Coordinator,
    ObservingTrainer,
    Options,
    RewardService,
    RolloutWorker,
    RowArrays,
    SegmentArrays,
    StartAnew,
    StepArrays,
    Trainer,
    Update,
    new_id,
    new_identity,
)
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.convention import Conventions, NamedConvention, NamedValueLoss
from rollbook.schemas.records.payload import Cohort, CohortMember, Kernel, OldSource
from rollbook.schemas.records.policy import AckFailure
from rollbook.schemas.records.reward import DiscardReason, RewardFailure
from rollbook.schemas.records.rollout import FinishReason, GenerationFailure, TaskSource
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    Enforcement,
    InitialPolicy,
    LagUnit,
    RewardIdentity,
)
from rollbook.schemas.types import Part
from rollbook.tests.producers.world import POLICY, SAMPLING, read_topic
from rollbook.tests.replay.numbers import CONFIG, TrainedRow, step_numbers

SECRET = "s3cr3t"
TOKENS = np.frombuffer(b"PROMPT-RESPONSE-", dtype="<i4")
"""Token ids whose bytes are readable in whatever record holds them."""
PATH = f"/home/{SECRET}/data"
URL = f"https://{SECRET}.example:8443/v1"
SENTENCE = f"the prompt leaked the customer's phone 555-0101, {SECRET}"
SHAPES = (
    SENTENCE,
    PATH,
    f"data/{SECRET}-acme/train.jsonl",
    rf"C:\models\{SECRET}\llama",
    URL,
    f"{SECRET}-host:8000",
    f"user@host:{SECRET}",
    f"key=sk-{SECRET}",
    f"sk-{SECRET}",
)
"""Each holds the secret where `truncate` does not keep it."""
POLICY_1 = PolicyRef(version=1, artifact_hash="weights-1")
RULE = RewardIdentity(rule_id=SHAPES[2], version=SHAPES[8], hash=URL)
WAIT_S = 60.0


class Planter:
    """The clients of a run of its own, each call given the next shape of a secret."""

    def __init__(self, settings: Settings, options: Options, enforcement: Enforcement, clients: ExitStack) -> None:
        self.settings = settings
        self.options = options
        self.enforcement = enforcement
        self.run_id = f"run-{new_id()}"
        enter = clients.enter_context
        self.coordinator = enter(Coordinator(settings, self.run_id, "coordinator-0", options=options))
        self.worker = enter(RolloutWorker(settings, self.run_id, "worker-0", options=options))
        self.rewards = enter(RewardService(settings, self.run_id, "rewards-0", RULE, options=options))
        self.next = cycle(SHAPES).__next__
        self.contract_hash = ""
        self.group_of: dict[str, str] = {}

    def open(self) -> None:
        """Configure the run and register its conditions."""
        artifact = Artifact(hash=POLICY.artifact_hash, kind=ArtifactKind.FILE, uri=self.next())
        self.coordinator.configure(
            admission=Admission(
                max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.OFF
            ),
            required_workers=["worker-0"],
            initial_policy=InitialPolicy(version=0, artifact=artifact, label=self.next()),
            pinned_rewards=[RULE],
            enforcement=self.enforcement,
        )
        self.contract_hash = self.worker.register_contract(
            tokenizer=self.next(), template=self.next(), engine=self.next(), sampling=SAMPLING
        )

    def group(self, size: int = 2) -> list[str]:
        """A group that is generated and rewarded, as a service does whose first attempts fail."""
        group_id, ids = new_id(), []
        for index in range(size):
            identity = new_identity(group_id, index, size)
            task = TaskSource(task_id=self.next(), prompt_hash="0" * 64, dataset=self.next(), row=0)
            self.worker.dispatched(identity, POLICY, task=task)
            self.worker.generated(
                identity,
                [SegmentArrays(TOKENS, TOKENS, np.full(len(TOKENS), -0.5), policy=POLICY)],
                task=task,
                contract_hash=self.contract_hash,
                finish_reason=FinishReason.STOP,
                rollout_partition_id=self.next(),
                overrides={**dict.fromkeys(SHAPES, "0.5"), "system_prompt": self.next(), "temperature": "0.5"},
            )
            ids.append(identity.trajectory_id)
            self.group_of[ids[-1]] = group_id
            self.rewards.failed(ids[-1], RewardFailure.TIMEOUT, retriable=True, text=self.next())
            components = dict.fromkeys(SHAPES, 0.5)
            self.rewards.reward(ids[-1], float(index), components=components, label_hash=f"label {self.next()}")
        assert self.worker.flush(WAIT_S) == 0
        assert self.rewards.flush(WAIT_S) == 0
        return ids

    def failures(self) -> None:
        """What fails with a text, once for each shape."""
        failed = [new_identity(new_id(), 0, 1) for _ in SHAPES]
        for shape, identity in zip(SHAPES, failed, strict=True):
            self.worker.generation_failed(identity, POLICY, GenerationFailure.ENGINE_ERROR, text=shape)
            self.worker.acknowledge_failure(AckFailure.DOWNLOAD_FAILED, text=shape)
            self.worker.discarded([identity.trajectory_id], DiscardReason.CUSTOM, text=shape)
            self.coordinator.acknowledge_failure("worker-1", AckFailure.LOAD_FAILED, text=shape)

    def close(self) -> None:
        """Quarantine a row for each reason there is, announce a policy, and end the run."""
        for shape in SHAPES:
            self.coordinator.quarantine(self.group(1), shape)
        artifact = Artifact(hash=POLICY_1.artifact_hash, kind=ArtifactKind.FILE, uri=self.next())
        self.coordinator.prepare(version=1, artifact=artifact, parent_version=0, update_ids=[], label=self.next())
        self.coordinator.close_run(text=self.next())

    def step(self, ids: Sequence[str]) -> StepArrays:
        """The recording of a step over one group, which replays."""
        ones, log_probs = np.ones(len(TOKENS), np.bool_), np.full(len(TOKENS), -0.5, np.float32)
        group_id = self.group_of[ids[0]]
        rows = [TrainedRow(one, group_id, float(index), ones, log_probs) for index, one in enumerate(ids)]
        numbers = step_numbers(rows)
        members = tuple(CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward) for row in rows)
        return StepArrays(
            consumer_batch_id=self.next(),
            policy=POLICY,
            config=CONFIG,
            cohorts=[Cohort(cohort_id=group_id, group_id=group_id, members=members)],
            rows=[
                RowArrays(row.trajectory_id, group_id, "mb-0000", len(TOKENS), row.loss_mask, reward)
                for row, reward in zip(rows, numbers.rewards, strict=True)
            ],
            arrays=numbers.arrays,
            old_source=OldSource.ROLLOUT,
            results=numbers.results,
            row_terms=numbers.row_terms,
            kernel=Kernel(implementation="numpy", package="tests", version="1", function="step_numbers"),
            framework_version=self.next(),
        )

    def misnamed_step(self, ids: Sequence[str]) -> StepArrays:
        """The recording of a step whose code and results have secret names: nothing that can become a bundle."""
        step = self.step(ids)
        code = Kernel(implementation=self.next(), package=self.next(), version=self.next(), function=self.next())
        config = step.config.model_copy(update={"advantage_estimator": self.next(), "kl_loss_type": self.next()})
        cohorts = [step.cohorts[0].model_copy(update={"cohort_id": shape}) for shape in SHAPES]
        rows = [replace(row, micro_batch_id=self.next()) for row in step.rows]
        results = {**step.results, **dict.fromkeys(SHAPES, 0.5)}
        terms = {**step.row_terms, **dict.fromkeys(SHAPES, [0.5] * len(ids))}
        named = {"framework": self.next(), "version": self.next(), "name": self.next()}
        conventions = Conventions(
            advantages=NamedConvention(**named), loss=NamedConvention(**named), value_loss=NamedValueLoss(**named)
        )
        return replace(
            step,
            kernel=code,
            config=config,
            cohorts=cohorts,
            rows=rows,
            results=results,
            row_terms=terms,
            conventions=conventions,
        )


def publish_in_gate(settings: Settings, options: Options) -> str:
    """A run that gates, with every way for an update to end; returns its id."""
    with ExitStack() as clients:
        planter = Planter(settings, options, Enforcement.GATE, clients)
        planter.open()
        planter.failures()
        trainer = clients.enter_context(
            Trainer(settings, planter.run_id, "learner-0", drift_gate=DriftGate.OFF, options=options)
        )
        trainer.start()
        ids = planter.group()
        with trainer.update(rollout_id=0) as update:
            _claim(update)
            update.abort(planter.next())
        with trainer.update(rollout_id=1) as update:
            _claim(update)
            update.start()
            update.record_step(update.step(ids), planter.step(ids))
        ids = planter.group(len(SHAPES))
        with trainer.update(rollout_id=2) as update:
            _claim(update)
            for one, shape in zip(ids, SHAPES, strict=True):
                update.drop([one], shape)
            update.start()
        with suppress(ArithmeticError), trainer.update(rollout_id=3) as update:
            _claim(update)
            raise ArithmeticError(planter.next())
        with trainer.update(rollout_id=4) as update:
            _claim(update)
            planter.coordinator.abort(update.update_id, text=planter.next())
        with suppress(StartAnew), trainer.update(rollout_id=5) as update:
            _claim(update)
            update.start()
            raise ArithmeticError(planter.next())
        planter.close()
        return planter.run_id


def publish_observed(settings: Settings, options: Options) -> str:
    """A run that is only observed; returns its id."""
    with ExitStack() as clients:
        planter = Planter(settings, options, Enforcement.OBSERVE, clients)
        planter.open()
        with ObservingTrainer(settings, planter.run_id, "learner-0", options=options) as trainer:
            ids, dropped = planter.group(), planter.group(len(SHAPES))
            with suppress(ArithmeticError), trainer.update(rollout_id=0) as update:
                update.reserve(ids, POLICY)
                raise ArithmeticError(planter.next())
            with trainer.update(rollout_id=1) as update:
                update.reserve([*ids, *dropped], POLICY)
                update.start()
                update.record_step(update.step(ids), planter.step(ids))
                for one, shape in zip(dropped, SHAPES, strict=True):
                    update.drop([one], shape)
            ids = planter.group()
            with trainer.update(rollout_id=2) as update:
                update.reserve(ids, POLICY)
                update.start()
                update.record_step(update.step(ids), planter.misnamed_step(ids))
        assert trainer.counters.lost == 0
        planter.coordinator.close_run(text=planter.next())
        return planter.run_id


def _claim(update: Update) -> None:
    update.claim(POLICY, max_groups=1, wait_s=WAIT_S)


def holding(settings: Settings, secret: bytes) -> list[str]:
    """Where these bytes lie, in any topic: topic and record type."""
    return [
        f"{topic.value}: {type(seen.record).__name__}"
        for topic in Topic
        for seen in read_topic(settings, topic)
        if secret in seen.key + seen.value
    ]


def fields_holding(settings: Settings, secret: str) -> set[str]:
    """Fields of the records that clients wrote which hold the secret."""
    return {
        f"{type(seen.record).__name__}.{path}"
        for topic in (Topic.LIFECYCLE, Topic.PAYLOADS)
        for seen in read_topic(settings, topic)
        for path, value in _leaves(seen.record)
        if isinstance(value, str) and secret in value
    }


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Part):
        for name in type(value).model_fields:
            yield from _leaves(getattr(value, name), f"{path}.{name}".removeprefix("."))
    elif isinstance(value, tuple):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield path, value


def text_fields(record_type: type[Part]) -> set[str]:
    """Paths of a record's fields that take any text: neither digests nor run ids nor one of a few values."""
    return {f"{record_type.__name__}.{path}" for path in _texts(record_type)}


def _texts(part: type[Part]) -> Iterator[str]:
    for name, field in part.model_fields.items():
        for kind, limits in _kinds(field.annotation, tuple(field.metadata)):
            if isinstance(kind, type) and issubclass(kind, Part):
                yield from (f"{name}.{path}" for path in _texts(kind))
            elif kind is str and any(getattr(limit, "max_length", None) for limit in limits):
                yield name


def _kinds(annotation: object, limits: tuple[object, ...]) -> Iterator[tuple[object, tuple[object, ...]]]:
    """The types that an annotation is made of, each with what limits it."""
    metadata = getattr(annotation, "__metadata__", None)
    if metadata is not None:
        yield from _kinds(get_args(annotation)[0], metadata)
    elif isinstance(annotation, type) and not get_args(annotation):
        yield annotation, limits
    else:
        for one in get_args(annotation):
            yield from _kinds(one, ())
