"""TRL's names as conventions: each is one that replay computes, and what no convention computes is named so that replay
says it does not know it. Neither torch nor TRL is needed for it."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import TypeAdapter

from rollbook.producers.identity import new_identity
from rollbook.producers.trl.conventions import FRAMEWORK, VERSION, advantages_name, conventions_of, loss_name
from rollbook.producers.trl.facts import (
    Choices,
    Conditions,
    Generation,
    MicroStep,
    RowFacts,
    SamplerCorrection,
    StepFacts,
)
from rollbook.producers.trl.reading import template_of
from rollbook.producers.trl.recording import step_arrays
from rollbook.producers.trl.scalars import scalars_of
from rollbook.replay.dialects import trl
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.convention import (
    Behavior,
    Conventions,
    Correction,
    EntropyMean,
    KlTerm,
    OffPolicyMask,
    Outlier,
    Reached,
    Vespo,
    WholeBatch,
)
from rollbook.schemas.records.run import LogProbKind, RewardIdentity, Sampling
from rollbook.schemas.types import Id

LOSS_TYPES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo")
LEVELS = ("token", "sequence")
LENGTH = 3


def conditions(loss: str = "grpo", level: str = "token", **changes: object) -> Conditions:
    made = Conditions(
        tokenizer="t",
        template="t",
        engine="transformers 5",
        sampling=Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=8, log_probs=LogProbKind.PROCESSED),
        reward=RewardIdentity(rule_id="r", version="1", hash="h"),
        version="1.16.0",
        framework_version="2",
        loss=loss,
        scale="group",
        level=level,
        n_generations=2,
        beta=0.0,
        epsilon_low=0.2,
        epsilon_high=0.28,
        entropy_coef=0.0,
        temperatures=(1.0, 1.05),
        max_completion_length=8,
        is_plain=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def row(group: str, at: int, *, is_scored: bool = True) -> RowFacts:
    ones, values = np.ones(LENGTH, np.bool_), np.full(LENGTH, -0.5, np.float32)
    return RowFacts(
        prompt_hash="0" * 64,
        prompt_ids=np.arange(2, dtype=np.int32),
        response_ids=np.arange(LENGTH, dtype=np.int32),
        action_mask=ones,
        loss_mask=ones,
        is_stopped=True,
        behavior=values,
        current=values,
        old=values,
        reference=None,
        raw_reward=float(at) if is_scored else None,
        components={},
        advantage=0.5 - at if is_scored else 0.0,
        identity=new_identity(group, at, 2),
        number=0,
    )


def step(given: Conditions, rows: tuple[RowFacts, ...] = (), **changes: object) -> StepFacts:
    """Of two rows a micro-batch and one generation of two steps; the second of them is not this one's."""
    rows = rows or tuple(row(group, at) for group in ("a", "b", "c", "d") for at in range(2))
    log_probs, entropies = (np.full((2, LENGTH), value, np.float32) for value in (-0.4, 0.5))
    micro = [MicroStep((first, first + 1), log_probs, entropies, loss=0.25, accumulated=2) for first in (0, 2)]
    generation = Generation(
        rollout_id=3, policy=PolicyRef(version=3, artifact_hash="h"), rows=rows, tokens=24.0, steps_per_generation=4
    )
    made = StepFacts(0, 0, "u", generation, tuple(micro), frozenset(), given)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_names_are_those_of_replay() -> None:
    assert (FRAMEWORK, VERSION) == (trl.FRAMEWORK, trl.VERSION)
    for loss, level in product(LOSS_TYPES, LEVELS):
        assert loss_name(loss, level) in trl.LOSSES
    for scale in ("group", "batch", "none"):
        assert advantages_name("sum_then_normalize", scale) in trl.ADVANTAGES


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        (conditions(), {}),
        (conditions("sapo", temperatures=(2.0, 3.0)), {"tau_pos": 2.0, "tau_neg": 3.0}),
        (conditions("dapo"), {"whole_batch": WholeBatch(tokens=12.0)}),
        (conditions("dr_grpo"), {"whole_batch": WholeBatch(length=8.0)}),
        (conditions(beta=0.04), {"kl_term": KlTerm(coef=0.04)}),
        (
            conditions(beta=0.04, choices=Choices(use_bias_correction_kl=True)),
            {"kl_term": KlTerm(coef=0.04, by_ratio=True)},
        ),
        (conditions(choices=Choices(delta=4.0)), {"delta": 4.0}),
        (conditions(choices=Choices(top_entropy_quantile=0.2)), {"top_entropy_quantile": 0.2}),
        (conditions(choices=Choices(has_entropy_bonus=True)), {"entropy_mean": EntropyMean.MICRO_BATCH}),
        (
            conditions(choices=Choices(off_policy_mask_threshold=0.1)),
            {"off_policy_mask": OffPolicyMask(threshold=0.1)},
        ),
        (
            conditions(choices=Choices(off_policy_mask_threshold=0.1, has_sampler=True)),
            {"off_policy_mask": OffPolicyMask(threshold=0.1, behavior=Behavior.ROLLOUT)},
        ),
        (
            conditions(choices=Choices(correction=SamplerCorrection("token_truncate", None, 3.0))),
            {"corrections": (Correction(reach=Reached.TOKEN, most=3.0, outside=Outlier.TRUNCATE),)},
        ),
        (
            conditions(choices=Choices(correction=SamplerCorrection("sequence_mask", 0.5, 3.0))),
            {"corrections": (Correction(reach=Reached.SEQ_SUM, least=0.5, most=3.0, outside=Outlier.ZERO),)},
        ),
        (
            conditions("vespo"),
            {
                "whole_batch": WholeBatch(tokens=12.0),
                "vespo": Vespo(k_pos=2.0, lambda_pos=3.0, k_neg=3.0, lambda_neg=2.0),
            },
        ),
    ],
)
def test_each_choice_has_its_key(given: Conditions, changed: dict[str, object]) -> None:
    found = conventions_of(step(given))
    assert str(found.loss) == f"trl 1.16.0 {given.loss}"
    expected = Conventions(advantages=found.advantages, loss=found.loss)
    assert found == expected.model_copy(update=changed)


def test_an_auxiliary_loss_and_another_release_are_names_that_replay_does_not_know() -> None:
    assert str(conventions_of(step(conditions("dapo", is_plain=False))).loss) == "trl 1.16.0 dapo+aux_loss"
    assert "dapo+aux_loss" not in trl.LOSSES
    sampled = step(conditions(choices=Choices(off_policy_mask_threshold=0.1, has_sampler=True)))
    gap = replace(sampled.generation.rows[0], has_gaps=True)
    rows = (gap, *sampled.generation.rows[1:])
    gappy = replace(sampled, generation=replace(sampled.generation, rows=rows))
    names = [str(conventions_of(one).loss) for one in (sampled, gappy)]
    assert names == ["trl 1.16.0 grpo", "trl 1.16.0 grpo+gaps_in_off_policy_mask"]
    assert "gaps_in_off_policy_mask" in trl.BEYOND
    assert str(conventions_of(step(conditions(version="1.16.3"))).advantages) == "trl 1.16.0 scale_rewards group"
    assert str(conventions_of(step(conditions(version="1.17.0"))).advantages) == "trl 1.17.0 scale_rewards group"
    summed = conditions(aggregation="normalize_then_sum")
    assert str(conventions_of(step(summed)).advantages) == "trl 1.16.0 normalize_then_sum"


def test_a_chat_template_of_many_lines_is_named() -> None:
    """Whatever the log may have of texts: one that is kept must be a name."""
    long, other = (template_of(SimpleNamespace(chat_template=f"{text}\n" * 99)) for text in ("{{ a }}", "{{ b }}"))
    assert long != other
    assert TypeAdapter(Id).validate_python(long) == long
    assert template_of(SimpleNamespace(chat_template=None)) == "plain"


def test_of_several_processes_each_says_what_all_divide_by() -> None:
    found = conventions_of(step(conditions("dapo"), ranks=2, rank=1))
    assert found.whole_batch == WholeBatch(tokens=12.0, ranks=2.0)


def test_tokens_that_were_refused_are_not_divided_by() -> None:
    whole = step(conditions("dapo"))
    refused = replace(whole, refused=frozenset([whole.rows[0].trajectory_id]))
    assert conventions_of(refused).whole_batch == WholeBatch(tokens=(24 - LENGTH) / 2)


def test_a_scale_of_the_whole_batch_names_all_groups_as_one_cohort() -> None:
    by_group, by_batch = (step_arrays(step(conditions(scale=scale))).cohorts for scale in ("group", "batch"))
    assert [(one.cohort_id, one.group_id) for one in by_group] == [("a", "a"), ("b", "b")]
    assert [(one.cohort_id, one.group_id) for one in by_batch] == [("generation-3", name) for name in "abcd"]
    assert [len(one.members) for one in by_batch] == [2] * 4


def test_with_an_entropy_bonus_the_loss_is_less_than_the_policys() -> None:
    given = step(conditions("dapo", choices=Choices(has_entropy_bonus=True)))
    found = scalars_of(replace(given, micro_steps=tuple(replace(one, entropy_coef=0.1) for one in given.micro_steps)))
    assert found.entropy_loss == pytest.approx(0.5)
    assert found.loss == 0.5
    assert found.pg_loss == pytest.approx(0.55)
