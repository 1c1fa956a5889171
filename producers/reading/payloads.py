"""Reads payloads back by their references, verified."""

from collections.abc import Sequence

from rollbook.infra.settings import Settings
from rollbook.producers import given
from rollbook.producers.reading.fetch import Fetcher, Place
from rollbook.schemas.payload_io import join
from rollbook.schemas.records.common import PayloadRef

DEADLINE_S = 30.0
# Payload records can be large: only near neighbours are worth reading through.
_SKIP = 8


def read_payload(settings: Settings, ref: PayloadRef, *, deadline_s: float = DEADLINE_S) -> bytes:
    """The bytes of one payload. Raises PayloadLost, PayloadCorrupt or EnvironmentFault."""
    given.a(PayloadRef, ref, "PayloadRef", "ref")
    with Fetcher(given.settings(settings)) as fetcher:
        return read_payloads(fetcher, [ref], deadline_s=deadline_s)[0]


def read_payloads(fetcher: Fetcher, refs: Sequence[PayloadRef], *, deadline_s: float = DEADLINE_S) -> list[bytes]:
    """The bytes of payloads, in the order of the references, each topic read once."""
    chunks: dict[tuple[str, Place], bytes] = {}
    for topic in sorted({ref.topic for ref in refs}):
        places = {Place(ref.partition, offset) for ref in refs if ref.topic == topic for offset in ref.offsets}
        found = fetcher.fetch(topic, places, skip=_SKIP, deadline_s=deadline_s)
        chunks.update({(topic, place): value for place, value in found.items()})
    return [join([chunks[ref.topic, Place(ref.partition, offset)] for offset in ref.offsets], ref) for ref in refs]
