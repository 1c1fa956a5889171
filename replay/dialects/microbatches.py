"""The micro-batches of a step: a loss that is the mean of what each of them comes to by itself."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rollbook.replay.kernels.aggregate import Aggregation, Totals, aggregate
from rollbook.replay.kernels.array import Array, namespace


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """`rows`: int64 positions of each one's rows; `tokens`: what each one's sum is divided by instead of its own."""

    rows: tuple[Array, ...]
    tokens: tuple[float, ...] | None = None

    def means(self, values: Array, mask: Array, rule: Aggregation, totals: Totals) -> Array:
        """The mean of each one's `aggregate`; values, mask: [rows, tokens]."""
        xp = namespace(values, mask)
        found = [
            aggregate(xp.take(values, rows, axis=0), xp.take(mask, rows, axis=0), rule, of_one)
            for rows, of_one in zip(self.rows, self._totals(totals), strict=True)
        ]
        return sum(found[1:], start=found[0]) / len(found)

    def _totals(self, totals: Totals) -> Iterator[Totals]:
        if self.tokens is None:
            yield from (totals for _ in self.rows)
        else:
            yield from (replace(totals, tokens=tokens) for tokens in self.tokens)
