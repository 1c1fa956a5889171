"""The policy: a tiny decoder-only transformer, its log-probs and entropies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.task import END, VOCABULARY_SIZE


def use_one_thread() -> None:
    """One thread a process: the processes share few cores; and sums then have one order, so runs repeat exactly."""
    torch.set_num_threads(1)


class Block(nn.Module):
    """Pre-norm causal self-attention and a two-layer perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.mlp_out(functional.gelu(self.mlp_in(self.mlp_norm(x))))
        return out


class TinyTransformer(nn.Module):
    """Token ids [batch, length] to next-token logits [batch, length, vocabulary]. No dropout, so forwards repeat."""

    def __init__(self, config: DemoConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY_SIZE, config.width)
        self.positions = nn.Embedding(config.max_digits + 1 + config.max_response_tokens, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, VOCABULARY_SIZE)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def new_model(config: DemoConfig) -> TinyTransformer:
    """A randomly initialised model; its weights follow from the seed alone, whatever torch's global generator holds."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = TinyTransformer(config)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1]))
    return model


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and the response to it, as token ids."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]


def batch_log_probs(model: TinyTransformer, sequences: Sequence[TokenSequence]) -> list[tuple[Tensor, Tensor]]:
    """Of each response token the log-prob and the entropy of the distribution it came from: two float32 [T] tensors a
    sequence, all in one forward. Differentiable: wrap it in `torch.no_grad()` to only look."""
    whole = [[*sequence.prompt_ids, *sequence.response_ids] for sequence in sequences]
    longest = max(map(len, whole))
    # Padding on the right needs no mask: attention is causal, and no real token comes after a padded one.
    padded = torch.tensor([ids + [END] * (longest - len(ids)) for ids in whole])
    log_softmax = functional.log_softmax(model(padded), dim=-1)
    chosen = log_softmax[:, :-1].gather(2, padded[:, 1:, None]).squeeze(2)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)[:, :-1]
    # The logits at position p - 1 are the distribution of the token at p.
    ends = torch.tensor([len(ids) - 1 for ids in whole])
    starts = torch.tensor([len(sequence.prompt_ids) - 1 for sequence in sequences])
    positions = torch.arange(longest - 1)
    response = (positions >= starts[:, None]) & (positions < ends[:, None])
    lengths = (ends - starts).tolist()
    return list(zip(torch.split(chosen[response], lengths), torch.split(entropy[response], lengths), strict=True))
