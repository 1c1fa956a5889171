"""What is put around TRL's queue, packer and tensors, so that it is seen what passes through them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

Sample = Mapping[str, Any]


class Queue:
    """TRL's rollout queue; tells of each sample that is taken out."""

    def __init__(self, queue: Any, arrived: Callable[[Any], None]) -> None:
        self._queue = queue
        self._arrived = arrived

    def get(self, *args: Any, **kwargs: Any) -> Any:
        sample = self._queue.get(*args, **kwargs)
        self._arrived(sample)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Packer:
    """TRL's collator; numbers its micro-batches, and packs one again without some of its rows."""

    def __init__(self, collator: Any, formed: Callable[[Sequence[Sample]], int | None], name: str) -> None:
        self._collator = collator
        self._formed = formed
        self._name = name
        self._rows: dict[int, Any] = {}

    def __call__(self, examples: Sequence[Any]) -> dict[str, Any]:
        batch: dict[str, Any] = self._collator(examples)
        (rows,) = examples
        number = self._formed([sample for row in rows for sample in row.samples])
        return batch if number is None else self._numbered(batch, number, rows)

    def without(self, number: int, kept: Sequence[int]) -> dict[str, Any]:
        """The micro-batch of the rows at these places alone, in their order."""
        (row,) = self._rows[number]
        again = type(row)()
        for place in kept:
            again.add(row.samples[place])
        # Metrics and trained groups were counted when it was packed first.
        quiet = replace(self._collator, metrics=defaultdict(list), groups_trained=set())
        return self._numbered(quiet([[again]]), number, [again])

    def forget(self, numbers: Sequence[int]) -> None:
        """These micro-batches are not packed again."""
        for number in numbers:
            self._rows.pop(number, None)

    def _numbered(self, batch: dict[str, Any], number: int, rows: Any) -> dict[str, Any]:
        self._rows[number] = rows
        return {**batch, self._name: batch["global_n_tokens"].new_full((len(rows),), number)}


class Terms:
    """Stands for a tensor of loss terms, and keeps what TRL selects of it."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self.selected: Any = None

    def __getitem__(self, chosen: Any) -> Any:
        self.selected = self._values[chosen]
        return self.selected
