"""Rollout: groups that repeat, log-probs that are the model's own, responses that end where they end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.model import TinyTransformer, TokenSequence, batch_log_probs, new_model
from rollbook.infra.demo.learning.rollout import FinishReason, sample_group
from rollbook.infra.demo.learning.task import END, train_prompt

CONFIG = DemoConfig()
PROMPTS = [train_prompt(CONFIG, row) for row in range(20)]


@pytest.fixture(scope="module")
def model() -> TinyTransformer:
    return new_model(CONFIG)


def of_one(
    model: TinyTransformer, prompt_ids: tuple[int, ...], response_ids: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    [found] = batch_log_probs(model, [TokenSequence(prompt_ids, response_ids)])
    return found


def test_behaviour_log_probs_are_those_of_the_policy(model: TinyTransformer) -> None:
    for prompt in PROMPTS:
        for response in sample_group(model, prompt, CONFIG):
            with torch.no_grad():
                log_probs, entropy = of_one(model, prompt.ids, response.ids)
            np.testing.assert_allclose(response.log_probs, log_probs.numpy(), atol=1e-5)
            assert response.log_probs.dtype == np.float32
            assert entropy.shape == log_probs.shape == (len(response.ids),)


def test_entropy_is_that_of_the_distribution(model: TinyTransformer) -> None:
    prompt = PROMPTS[0]
    with torch.no_grad():
        every_token = torch.stack([of_one(model, prompt.ids, (token,))[0][0] for token in range(12)])
        _, entropy = of_one(model, prompt.ids, (END,))
    assert every_token.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    assert entropy.item() == pytest.approx(-(every_token.exp() * every_token).sum().item(), abs=1e-5)


def test_responses_end_with_the_end_token_or_at_the_limit(model: TinyTransformer) -> None:
    responses = [response for prompt in PROMPTS for response in sample_group(model, prompt, CONFIG)]
    assert {response.finish_reason for response in responses} == {FinishReason.STOP, FinishReason.LENGTH}
    for response in responses:
        assert len(response.log_probs) == len(response.ids)
        if response.finish_reason is FinishReason.STOP:
            assert response.ids.index(END) == len(response.ids) - 1
        else:
            assert END not in response.ids
            assert len(response.ids) == CONFIG.max_response_tokens


def test_a_group_follows_from_prompt_seed_and_attempt(model: TinyTransformer) -> None:
    def ids(seed: int = 0, attempt: int = 0) -> list[tuple[int, ...]]:
        group = sample_group(model, PROMPTS[0], replace(CONFIG, seed=seed), attempt=attempt)
        return [response.ids for response in group]

    torch.manual_seed(1)
    first = ids()
    torch.manual_seed(2)
    assert ids() == first
    assert len(set(first)) > 1
    assert ids(attempt=1) != first
    assert ids(seed=1) != first
