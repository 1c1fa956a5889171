"""The task: prompts that repeat, a verifier that gives partial credit."""

import random

import pytest

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.task import (
    END,
    SEPARATOR,
    Prompt,
    eval_prompts,
    reward_of,
    sloppy_demonstration,
    train_prompt,
)
from rollbook.schemas.errors import BadInput

CONFIG = DemoConfig()
PROMPT = Prompt(dataset="d", row=0, digits=(3, 1, 2))


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ((1, 2, 3, END), 1.0),
        ((1, 2, 3), 0.75),
        ((1, 2, 4, END), 0.75),
        ((3, 1, 2, END), 0.25),
        ((1, 2, 3, 3, END), 0.6),
        ((1, END), 0.25),
        ((END,), 0.0),
        ((SEPARATOR,) * 9, 0.0),
        ((), 0.0),
    ],
)
def test_the_reward_is_the_share_of_right_positions(response: tuple[int, ...], reward: float) -> None:
    assert reward_of(PROMPT, response) == pytest.approx(reward, abs=1e-7)


def test_a_prompt_ends_with_the_separator_and_its_label_with_the_end_token() -> None:
    assert PROMPT.ids == (3, 1, 2, SEPARATOR)
    assert PROMPT.label == (1, 2, 3, END)


def test_training_prompts_follow_from_seed_and_row() -> None:
    rows = range(200)
    assert [train_prompt(CONFIG, row) for row in rows] == [train_prompt(CONFIG, row) for row in rows]
    assert [train_prompt(CONFIG, row) for row in rows] != [train_prompt(DemoConfig(seed=1), row) for row in rows]
    # The same on every machine and in every process, so that whoever holds a row number holds the prompt.
    assert train_prompt(CONFIG, 0).digits == (0, 4, 6, 3, 8)


def test_evaluation_prompts_are_the_same_for_every_seed() -> None:
    assert eval_prompts(CONFIG) == eval_prompts(DemoConfig(seed=5))
    assert len(set(eval_prompts(CONFIG))) == CONFIG.eval_prompts


def test_demonstrations_are_as_wrong_as_sloppiness_says() -> None:
    rng = random.Random(0)
    prompts = [train_prompt(CONFIG, row) for row in range(500)]
    perfect = [reward_of(p, sloppy_demonstration(p, 0.0, rng)) for p in prompts]
    sloppy = [reward_of(p, sloppy_demonstration(p, 0.5, rng)) for p in prompts]
    assert perfect == [1.0] * 500
    assert 0.55 < sum(sloppy) / 500 < 0.7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 50}, "width 50 is not a multiple of heads 4"),
        ({"max_response_tokens": 6}, "leaves no room for the end token"),
        ({"max_digits": 11, "max_response_tokens": 12}, "distinct digits"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        DemoConfig(**change)  # type: ignore[arg-type]
