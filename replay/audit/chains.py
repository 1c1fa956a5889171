"""Chain heads that were noted, by checkpoints in the log or elsewhere by whoever asks: each must be some decision's."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from rollbook.replay.audit.decisions import Derived, Stretch
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.noted import noted_digest
from rollbook.replay.history.source import LogSource
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.update import CheckpointSaved
from rollbook.schemas.text import visible

_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class _Noted:
    """By a checkpoint whose decision was no recent one."""

    place: str
    checkpoint: str
    chain: str


class Chains:
    """`wanted`: heads noted elsewhere; `before`: those that the anchor has, None where there is none; `is_vouched`:
    whether its digest was noted elsewhere, too. Of one that was not anybody could have made the rows."""

    def __init__(self, wanted: Iterable[str], before: frozenset[str] | None, *, is_vouched: bool = False) -> None:
        self._is_anchored = before is not None
        self._before = before or frozenset()
        self._known = self._before if is_vouched else frozenset()
        self._wanted = set(wanted) - self._known
        self._noted: list[_Noted] = []
        self._recent: OrderedDict[str, None] = OrderedDict()
        """The latest, in order: two decisions have never the same."""

    def take(self, derived: Derived) -> None:
        """The next decision, and what a checkpoint notes."""
        record = derived.record if derived.decision.record_type == CheckpointSaved.__name__ else None
        if isinstance(record, CheckpointSaved) and not self._is_known(record.chain):
            self._noted.append(_Noted(derived.stored.place, record.checkpoint.id, record.chain))
        self._wanted.discard(derived.decision.chain)
        self._recent[derived.decision.chain] = None
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)

    def _is_known(self, chain: str) -> bool:
        return chain in self._known or chain in self._recent

    def unknown_heads(self, stretch: Stretch) -> Iterator[Finding]:
        """Those noted elsewhere that no derived decision has."""
        where = f"{stretch.lifecycle}:{stretch.partition}"
        what = "the head that was noted elsewhere"
        if self._is_anchored:  # what lies there was not derived, and anybody could have written it
            what += "; of a decision before the anchor it can be asked where that was sealed, and not here"
        anchors = (
            "the head that was noted elsewhere: the anchor alone has it, and anybody could have made that one; its "
            "digest vouches for it, as its seal printed it: --anchor-digest"
        )
        for chain in sorted(self._wanted):
            told = anchors if chain in self._before else what
            yield Finding(FindingKind.HEAD_UNKNOWN, where, told, {"chain": chain}, {})

    def unknown_checkpoints(self, logs: Iterable[LogSource], stretch: Stretch) -> tuple[list[Finding], int]:
        """Checkpoints that note what no decision has, and the number of those of which that cannot be told. One may be
        of a decision long past, also before an anchor: they are looked for once more, all together, in `logs`."""
        missing = {one.chain for one in self._noted}
        is_whole = not self._is_anchored
        for log in logs if missing else ():
            with suppress(BadInput):
                bounds = log.bounds(stretch.decisions, stretch.partition)
                for stored in log.read(stretch.decisions, stretch.partition, bounds.first, bounds.end):
                    missing.discard((stored.value or b"")[-64:].decode(errors="replace"))
                is_whole = is_whole or bounds.first == 0
        left = [one for one in self._noted if one.chain in missing]
        if not is_whole:
            return [], len(left)
        return [
            Finding(
                FindingKind.CHECKPOINT_CHAIN,
                one.place,
                f"checkpoint {visible(one.checkpoint)}",
                {"chain": one.chain},
                {},
            )
            for one in left
        ], 0


def noted_heads(texts: Iterable[str]) -> frozenset[str]:
    """Chain heads as given. Raises BadInput for what is none."""
    return frozenset(noted_digest(text, "chain head", "audits print it") for text in texts)
