"""Whether what else the log has contradicts the decisions that were derived: a history that was rewritten from some
point on, its decisions with it, derives without a fault."""

from collections.abc import Iterator
from dataclasses import replace

from rollbook.replay.audit.chains import Chains
from rollbook.replay.audit.decisions import Deriver, Stretch
from rollbook.replay.audit.findings import Finding, unfit
from rollbook.replay.audit.ledger import NotHere, read_ledger
from rollbook.replay.history.source import LogSource
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible


def refusal(finding: Finding) -> BadInput:
    """No proof of a history in which this was found."""
    noted = f" {visible(finding.said['chain'])}" if set(finding.said) == {"chain"} else ""
    return unfit(replace(finding, what=f"{finding.what}{noted}"), "such a history proves nothing")


def check_vouched(log: LogSource, stretch: Stretch, deriver: Deriver, chains: Chains) -> None:
    """Raises BadInput where a head that was noted, elsewhere or by a checkpoint, is no decision's, or where the
    compacted ledger is another one than the decisions lead to."""
    for finding in _contradictions(log, stretch, deriver, chains):
        raise refusal(finding)


def _contradictions(log: LogSource, stretch: Stretch, deriver: Deriver, chains: Chains) -> Iterator[Finding]:
    yield from chains.unknown_heads(stretch)
    yield from chains.unknown_checkpoints((log,), stretch)[0]
    yield from _of_the_ledger(log, stretch, deriver)


def _of_the_ledger(log: LogSource, stretch: Stretch, deriver: Deriver) -> Iterator[Finding]:
    """Nothing where it stands at another place: that of a log that goes on is soon behind what was derived."""
    end = deriver.decided_to if deriver.undecided else stretch.within.end
    try:
        kept = read_ledger(log, stretch, deriver.ledger.topic_partitions)
        if (foreign := kept.no_position()) is not None:
            yield foreign
        elif deriver.decided_to <= kept.next_offset <= end:
            yield from kept.differences(deriver.ledger, stretch.run_id)
    except NotHere:
        return
