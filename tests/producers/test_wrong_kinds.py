"""What a trainer's author hands over in the first ten minutes: of a wrong kind it is named, and what is right is taken
as they have it at hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.infra.settings import Settings
from rollbook.producers import (
    Coordinator,
    FreshnessReader,
    ObservedRow,
    ObservingTrainer,
    Options,
    Reward,
    RewardService,
    RolloutWorker,
    SegmentArrays,
    Trainer,
    current_epoch,
    given,
    new_identity,
    read_payload,
)
from rollbook.producers.arrays import Field, real, reals, token_ids
from rollbook.producers.clients.reward import _token_bytes
from rollbook.producers.updates.drift import current_payloads
from rollbook.producers.updates.holdings import check_listed
from rollbook.producers.updates.phase import Phase, remedy
from rollbook.producers.updates.update import Update
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.rollout import FinishReason
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.schemas.types import called
from rollbook.tests.processors.hosting import host_in_thread
from rollbook.tests.producers.world import CONTRACT_HASH, POLICY, RULE, TASK, row
from rollbook.tests.session_broker import own_topics

PLACE = Field("Generated", "segments.0.log_probs")
ADMISSION = Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.OFF)
INITIAL = InitialPolicy(version=0, artifact=Artifact(hash="h", kind=ArtifactKind.FILE))


@pytest.mark.parametrize(
    "values",
    [
        [-0.5, -0.25],
        (-0.5, -0.25),
        np.array([-0.5, -0.25], np.float16),
        torch.tensor([-0.5, -0.25], requires_grad=True),
        torch.tensor([-0.5, -0.25], dtype=torch.bfloat16),
        torch.tensor([-0.5, -0.25], dtype=torch.float64),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_numbers_are_taken_as_a_trainer_has_them(values: Any) -> None:
    assert reals(PLACE, values, 2).tolist() == [-0.5, -0.25]


def test_tensors_with_gradients_are_taken_wherever_arrays_are() -> None:
    ones = torch.ones(2, requires_grad=True)
    assert current_payloads("run-0", "u0", {"t": -ones})[0].data
    assert ObservedRow("t", [(-ones, ones)], -ones).snapshot().evidence_digest
    assert _token_bytes(0, ones) == np.ones(2, np.float32).tobytes()


class Odd:
    """Of a library that nobody has heard of."""

    def detach(self) -> object:
        return object()

    def __array__(self, *_: object, **__: object) -> None:
        raise KeyError("no such device")


@pytest.mark.parametrize("odd", [Odd(), [[-1.0], [-1.0, -2.0]], object()])
def test_what_is_no_array_is_named_by_its_field(odd: Any) -> None:
    with pytest.raises(RollbookError, match=r"^Generated: field segments\.0\.log_probs: it is "):
        reals(PLACE, odd)
    observed = ObservedRow("t", [(odd, [1, 1])], odd).snapshot()
    assert observed.size >= np.asarray([1, 1]).nbytes
    with pytest.raises(RollbookError, match=r"^Admit: field behavior\.0\.log_probs: it is "):
        assert observed.evidence_digest


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ("t0", "'t0' is a text: put it in a list"),
        (None, "this is None: give a list"),
        ([row()], "a rollbook.*Arrays: give"),
    ],
)
def test_rows_are_named_by_a_list_of_their_ids(ids: Any, said: str) -> None:
    with pytest.raises(RollbookError, match=said):
        check_listed(ids)


def test_ids_and_single_numbers_are_taken_too() -> None:
    assert token_ids(PLACE, torch.tensor([1, 2])).tolist() == [1, 2]
    assert [real(one) for one in (1.0, np.float32(1), torch.tensor(1.0), np.int64(1))] == [1.0] * 4
    identity = new_identity("g", np.int64(1), np.int64(4))
    assert (identity.sample_index, identity.group_expected) == (1, 4)


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "None"), (1, "an int"), ("", "a str"), (np.int64(1), "a numpy.int64"), (torch.ones(1), "a torch.Tensor")],
)
def test_a_kind_by_its_name(value: object, name: str) -> None:
    assert called(value) == name


def generated(worker: RolloutWorker, **change: Any) -> str:
    given: dict[str, Any] = {
        "identity": new_identity("g", 0, 1),
        "segments": [row()],
        "task": TASK,
        "contract_hash": CONTRACT_HASH,
        "finish_reason": FinishReason.STOP,
        "rollout_partition_id": "b",
    }
    return worker.generated(**{**given, **change})


Call = Callable[[Settings, RolloutWorker, RewardService], object]
WRONG: list[tuple[Call, str]] = [
    (lambda s, w, r: RolloutWorker("127.0.0.1:9092", "r", "w"), "settings is a str, and must be a Settings"),  # type: ignore[arg-type]
    (lambda s, w, r: RolloutWorker(None, "r", "w"), "settings is None, and must be a Settings: give Settings.from_env"),  # type: ignore[arg-type]
    (lambda s, w, r: RolloutWorker(s, "r", "w", options={}), "options is a dict, and must be an Options"),  # type: ignore[arg-type]
    (lambda s, w, r: RolloutWorker(s, 5, "w"), "run_id: it is an int, and must be a str"),  # type: ignore[arg-type]
    (lambda s, w, r: RewardService(s, "r", "w", "exact"), "reward: it is a str, and must be a RewardIdentity"),  # type: ignore[arg-type]
    (lambda s, w, r: generated(w, task={"task_id": "x"}), "task: it is a dict, and must be a TaskSource"),
    (lambda s, w, r: generated(w, task=None), "task: it is None, and must be a TaskSource"),
    (lambda s, w, r: generated(w, segments=row()), "segments: it is a rollbook.producers.clients.segments.Segment"),
    (lambda s, w, r: generated(w, segments=[{}]), "segments.0: it is a dict, and must be a SegmentArrays"),
    (lambda s, w, r: generated(w, identity=None), "identity: it is None, and must be a TrajectoryIdentity"),
    (
        lambda s, w, r: generated(w, segments=[SegmentArrays([1], [2], [-1.0], policy=0)]),  # type: ignore[arg-type]
        "policy: it is an int, and must be a PolicyRef",
    ),
    (lambda s, w, r: w.discarded("one", DiscardReason.SURPLUS), "trajectory_ids: it is a str, and must be a list"),  # type: ignore[arg-type]
    (lambda s, w, r: w.register_contract(tokenizer="t", template="t", engine="e", sampling=None), "must be a Sampling"),  # type: ignore[arg-type]
    (lambda s, w, r: w.register_contract(tokenizer=None, template="t", engine="e", sampling=None), "tokenizer: it is "),  # type: ignore[arg-type]
    (lambda s, w, r: r.rewards([1]), "rewards.0: it is an int, and must be a Reward"),  # type: ignore[list-item]
    (lambda s, w, r: r.reward("t", None), "raw_reward: it is None, and must be a float"),  # type: ignore[arg-type]
    (lambda s, w, r: r.reward("t", True), "raw_reward: it is a bool, and must be a float"),
    (lambda s, w, r: r.reward("t", [1.0]), "raw_reward: it is a list, and must be a float"),  # type: ignore[arg-type]
    (lambda s, w, r: r.reward(PLACE, 1.0), "trajectory_id: it is a rollbook.*Field, and must be a str"),  # type: ignore[arg-type]
    (lambda s, w, r: r.rewards([Reward("t", 1.0, [1])]), "components: it is a list, and must be a dict"),  # type: ignore[arg-type]
    (lambda s, w, r: generated(w, overrides=["a"]), "overrides: it is a list, and must be a dict"),
    (lambda s, w, r: generated(w, overrides={"top_p": 0.5}), "value: it is a float, and must be a str"),
    (lambda s, w, r: generated(w, rollout_partition_id=3), "rollout_partition_id: it is an int, and must be a str"),
    (
        lambda s, w, r: w.discarded(["t"], DiscardReason.CUSTOM, text=ValueError()),  # type: ignore[arg-type]
        "text: it is a ValueError, and must be a str",
    ),
]


def test_what_is_of_a_wrong_kind_is_named(broker: str) -> None:
    """No AttributeError from within, and nothing is published."""
    with (
        own_topics(broker, 1) as settings,
        RolloutWorker(settings, "run-0", "worker-0") as worker,
        RewardService(settings, "run-0", "rewards-0", RULE) as rewards,
    ):
        for call, said in WRONG:
            with pytest.raises(RollbookError, match=said):
                call(settings, worker, rewards)
        assert worker.counters.published == rewards.counters.published == 0


def configured(coordinator: Coordinator, fold_version: int = 1, **change: Any) -> None:
    coordinator.configure(
        admission=ADMISSION.model_copy(update=change),
        required_workers=[],
        initial_policy=INITIAL,
        fold_version=fold_version,
    )


COMMANDED: list[tuple[Callable[[Coordinator], object], str]] = [
    (
        lambda c: c.configure(admission=ADMISSION, required_workers="w0", initial_policy=INITIAL),
        "required_workers: it is a str, and must be a list: put it in one",  # else workers w and 0 would be waited for
    ),
    (
        lambda c: c.configure(admission=ADMISSION, required_workers=[], initial_policy={"version": 0}),  # type: ignore[arg-type]
        "initial_policy: it is a dict, and must be an InitialPolicy",
    ),
    (
        lambda c: c.prepare(version=1, artifact=INITIAL.artifact, parent_version=0, update_ids="u0"),
        "update_ids: it is a str, and must be a list",
    ),
    (
        lambda c: c.prepare(version=1, artifact="hash", parent_version=0, update_ids=[]),  # type: ignore[arg-type]
        "artifact: it is a str, and must be an Artifact",
    ),
    (lambda c: c.quarantine("t0", "why"), "trajectory_ids: it is a str, and must be a list"),
    (lambda c: c.activate(1, 0), "policy: it is an int, and must be a PolicyRef"),  # type: ignore[arg-type]
    (lambda c: c.activate(POLICY, None), "expected_active_version: it is None, and must be an int"),  # type: ignore[arg-type]
    (lambda c: c.acknowledge(["w0"], POLICY), "worker_id: it is a list, and must be a str"),  # type: ignore[arg-type]
    (lambda c: configured(c, max_lag="2"), "Admission: field max_lag: it is a str, and must be an int"),
    (lambda c: configured(c, max_lags=2), "Admission: field max_lags: there is no such field"),  # not: unchanged limits
    (
        lambda c: configured(c, fold_version=99),
        "fold_version is 99, and this rollbook has",
    ),  # else none decides
]


@pytest.mark.parametrize(
    ("is_now", "wanted", "said"),
    [
        (Phase.NEW, Phase.OPEN, "call update.claim(...) or update.reserve(...) first"),
        (Phase.NEW, Phase.STARTED, "claim or reserve rows first, then start"),
        (Phase.OPEN, Phase.STARTED, "call update.start() first"),
        (Phase.STARTED, Phase.OPEN, "call it before update.start()"),
        (Phase.COMMITTED, Phase.STARTED, "it is over, take another one with trainer.update(...)"),
    ],
)
def test_what_is_to_be_done_before(is_now: Phase, wanted: Phase, said: str) -> None:
    assert remedy(is_now, wanted) == said


def test_what_a_trainer_is_given(broker: str) -> None:
    with own_topics(broker, 1) as settings, host_in_thread(settings):
        with Coordinator(settings, "run-0", "c") as coordinator:
            coordinator.configure(admission=ADMISSION, required_workers=[], initial_policy=INITIAL)
            with pytest.raises(RollbookError, match="wait_for_acks_s is a str, and must be seconds"):
                coordinator.activate(POLICY, 0, wait_for_acks_s="30")  # type: ignore[arg-type]
        with Trainer(settings, "run-0", "l0") as trainer:
            trainer.start()
            for number, said in (("0", "it is a str, which"), (None, "it is None, which"), (-1, "-1")):
                with pytest.raises(RollbookError, match=f"rollout_id: {said} is not the number of an iteration"):
                    trainer.update(number)  # type: ignore[arg-type]
            with pytest.raises(RollbookError, match="handle: it is a str, and must be an UpdateHandle"):
                trainer.adopt("{}")  # type: ignore[arg-type]
            for every_s in ("5", -1, float("nan")):  # else no lease is kept, and nobody hears of it
                with pytest.raises(RollbookError, match=r"renew_every_s is .*, and must be seconds from 0 on"):
                    trainer.update(0, renew_every_s=every_s)  # type: ignore[arg-type]
            update = trainer.update(np.int64(0))
            for call, said in OF_AN_UPDATE:
                with pytest.raises(RollbookError, match=said):
                    call(update)


@pytest.mark.parametrize("kind", [Trainer, ObservingTrainer])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lease_ms": "5"}, "lease_ms is a str: give a whole number from 0 on"),
        ({"lease_ms": -1}, "lease_ms is -1: give a whole number from 0 on"),
        ({"rank": None}, "rank is None: give a whole number from 0 on"),
        ({"rank": 2**63}, "rank is too large: give a whole number from 0 on"),
    ],
)
def test_options_of_trainers(kind: type[Any], options: dict[str, Any], said: str) -> None:
    """Before anything is connected: no broker is needed to be told."""
    with pytest.raises(RollbookError, match=said):
        kind(Settings("127.0.0.1:1"), "run-0", "l0", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"redaction": "drop"}, "redaction is a str, it must be a Redaction"),
        ({"redaction": None}, "redaction is None, it must be a Redaction"),
        ({"on_error": 3}, "on_error is an int, it must be a function of one error"),
    ],
)
def test_options_of_all_clients(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RollbookError, match=said):
        Options(**options)


def test_what_else_a_trainer_is_made_of() -> None:
    nowhere = Settings("127.0.0.1:1")
    for options in ({}, {"max_events": 5}):
        with pytest.raises(RollbookError, match="options is a dict, and must be an Options"):
            ObservingTrainer(nowhere, "run-0", "l0", options=options)  # type: ignore[arg-type]
    with pytest.raises(RollbookError, match="enforcement is gated: give one of gate, observe"):
        Trainer(nowhere, "run-0", "l0", enforcement="gated")  # type: ignore[arg-type]


READ: list[tuple[Callable[[Any], object], str]] = [
    (lambda settings: FreshnessReader("x", "run-0"), "settings is a str"),  # type: ignore[arg-type]
    (lambda settings: FreshnessReader(settings, 5), "run_id: it is an int"),  # type: ignore[arg-type]
    (lambda settings: current_epoch("x", "run-0", "l0"), "settings is a str"),  # type: ignore[arg-type]
    (lambda settings: current_epoch(settings, None, "l0"), "run_id: it is None"),  # type: ignore[arg-type]
    (lambda settings: read_payload(settings, "ref"), "ref: it is a str, and must be a PayloadRef"),  # type: ignore[arg-type]
    (lambda settings: read_payload(None, PayloadRef.trusted()), "settings is None"),  # type: ignore[arg-type]
]


def test_what_readers_are_given() -> None:
    for read, said in READ:
        with pytest.raises(RollbookError, match=said):
            read(Settings("127.0.0.1:1"))


def test_what_a_trainer_does_without_a_broker_is_one_of_three() -> None:
    with pytest.raises(RollbookError, match="on_unavailable is wiat: give one of stop, wait, proceed_unres"):
        Trainer(Settings("127.0.0.1:1"), "run-0", "l0", on_unavailable="wiat")  # type: ignore[arg-type]


def test_numbers_of_numpy_and_waiting_for_ever_are_taken() -> None:
    assert given.seconds(np.float32(0.5), "wait_s") == 0.5
    assert given.seconds(np.int64(3), "wait_s") == 3.0
    assert given.seconds(float("inf"), "wait_s") > 24 * 3600
    assert given.whole(np.int64(7), "rank") == 7
    for wrong in (True, np.int64(-1), np.float64("nan"), 1j):
        with pytest.raises(RollbookError, match="wait_s is"):
            given.seconds(wrong, "wait_s")  # type: ignore[arg-type]


OF_AN_UPDATE: list[tuple[Callable[[Update], object], str]] = [
    (lambda u: u.claim(POLICY, 8, wait_s="5"), "wait_s is a str, and must be seconds from 0 on"),  # type: ignore[arg-type]
    (lambda u: u.claim(POLICY, 8, wait_s=float("nan")), "wait_s is nan, and must be seconds from 0 on"),
    (lambda u: u.claim(0, 8), "policy: it is an int, and must be a PolicyRef"),  # type: ignore[arg-type]
    (lambda u: u.reserve("t0", POLICY), "items: it is a str, and must be a list"),  # type: ignore[arg-type]
    (lambda u: u.reserve(["t0"], POLICY), "items.0: it is a str, and must be a ReserveItem"),  # type: ignore[list-item]
    (lambda u: u.admit({}, POLICY, evidence=None), "evidence: it is None, and must be a list"),  # type: ignore[arg-type]
    (lambda u: u.admit([[-1.0]], POLICY), "current_log_probs: it is a list, and must be a Mapping"),  # type: ignore[arg-type]
    (lambda u: u.commit(expected_ranks=2), "expected_ranks: it is an int, and must be a list"),  # type: ignore[arg-type]
    (lambda u: u.start(), "is new, this needs one that is open: call update.claim"),
]


def test_commands_likewise(broker: str) -> None:
    with own_topics(broker, 1) as settings, Coordinator(settings, "run-0", "c") as coordinator:
        for call, said in COMMANDED:
            with pytest.raises(RollbookError, match=said):
                call(coordinator)
        assert coordinator.counters.published == 0
