"""The sections of a frame below its headline. Pure."""

from rich.text import Text

from rollbook.infra.watching.charts import Ink, age, bar
from rollbook.infra.watching.page import Section, Tone, joined, said
from rollbook.infra.watching.seen import Minutes, Seen
from rollbook.schemas.records.decision import FreshnessSnapshot, OpenUpdate, WorkerReport

_MOST = 64
"""Lines that no screen is too small for, and that no run makes more of."""


def ready(snapshot: FreshnessSnapshot, width: int, ink: Ink) -> Section:
    """What waits to be trained on, by lag."""
    shown = snapshot.ready_by_lag[:_MOST]
    most = max((one.count for one in shown), default=0)
    lines = []
    for one in shown:
        tone, word = _freshness(one.lag, snapshot.max_lag)
        chart = Text(bar(one.count, most, max(4, width - 30), ink), style=(tone or Tone.CHART).value)
        lines.append(joined(f"lag {one.lag:>3} {one.count:>7,} ", chart, Text(f" {word}" if word else "", tone.value)))
    return Section("Ready by lag", tuple(lines))


def _freshness(lag: int, max_lag: int) -> tuple[Tone, str]:
    if lag > max_lag:
        return Tone.BAD, "stale"
    if lag < 0:
        return Tone.LOOK, "ahead"
    return (Tone.LOOK, "expires next") if lag == max_lag else (Tone.PLAIN, "")


def refused(snapshot: FreshnessSnapshot, minutes: Minutes) -> Section:
    """How often so far, by record and reason, and how many of them within the last minutes."""
    lately = {(record_type, reason): count for record_type, reason, count in minutes.refusals}
    found = sorted(
        snapshot.refusals, key=lambda one: (-lately.get((one.record_type, one.reason), 0), -one.count, one.reason)
    )
    lines = []
    for one in found[:_MOST]:
        new = lately.get((one.record_type, one.reason), 0)
        more = Text(f"{f' +{new:,}' if new else '':>7} ", style=Tone.LOOK.value)
        lines.append(joined(f"{one.count:>7,}", more, said(f"{one.record_type or 'record'} {one.reason}")))
    return Section("Refused: so far, lately", tuple(lines))


def open_updates(seen: Seen, snapshot: FreshnessSnapshot) -> Section:
    """Those that have not ended, the doubtful and those whose lease ends next first."""
    leases = dict(seen.leases)
    far = seen.now_ms + 10**12
    found = sorted(snapshot.updates, key=lambda one: (not one.in_doubt, leases.get(one.update_id, far)))
    lines = []
    for one in found[:_MOST]:
        tone, lease = _lease(one, leases.get(one.update_id), seen.now_ms)
        row = said(f"{one.status}, holds {one.held:,}", Tone.QUIET)
        lines.append(joined(Text(f"{lease:<9}", style=tone.value), " ", said(one.update_id), "  ", row))
    return Section("Open updates", tuple(lines))


def _lease(update: OpenUpdate, ends_ms: int | None, now_ms: int) -> tuple[Tone, str]:
    if update.in_doubt:
        return Tone.BAD, "! IN DOUBT"
    if not update.lease_ms:
        return Tone.QUIET, "no lease"
    if ends_ms is None:
        return Tone.QUIET, "lease ?"
    left_s = (ends_ms - now_ms) / 1_000
    if left_s <= 0:
        return Tone.BAD, f"! lease over for {age(-left_s)}"
    return Tone.LOOK if left_s * 4_000 < update.lease_ms else Tone.PLAIN, f"lease {age(left_s)}"


def workers(snapshot: FreshnessSnapshot) -> Section:
    """What each serves; those that an activation waits for first, and among them those that are behind."""
    found = sorted(snapshot.workers, key=lambda one: (not one.required, one.serves_active, one.worker_id))
    return Section("Workers", tuple(_worker(one) for one in found[:_MOST]))


def _worker(worker: WorkerReport) -> Text:
    name = joined(said(worker.worker_id), Text("" if worker.required else " (not required)", style=Tone.QUIET.value))
    if worker.serves_active:
        return joined(Text("active  ", style=Tone.GOOD.value), name)
    bad = Tone.BAD if worker.required else Tone.LOOK
    if worker.failure:
        return joined(Text("! failed ", style=bad.value), name, " ", said(worker.failure, Tone.LOOK))
    if worker.serves is None:
        return joined(Text("! silent ", style=bad.value), name)
    return joined(Text("! behind ", style=bad.value), name, Text(f" at {worker.serves.version}"))
