"""A frame of the view: what is known of a run, in so many columns and lines. Pure."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from rollbook.infra.watching.charts import Ink, age, rate, share, sparkline
from rollbook.infra.watching.page import Tone, beside, fit, flowed, joined, said, stacked
from rollbook.infra.watching.sections import open_updates, ready, refused, workers
from rollbook.infra.watching.seen import Seen
from rollbook.processors.dashboard.answers import Reading
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.schemas.text import plural

_BESIDE = 76
"""Columns from which sections stand beside each other."""
_HASH = 8
_LABEL = 28


def frame(seen: Seen, width: int, height: int, ink: Ink, hint: str = "") -> list[Text]:
    """Its lines, `height` at most, each `width` at most."""
    top = [_title(seen, width), *flowed((*_standing(seen), *_hint(hint)), width)]
    if seen.snapshot is None:
        lines = [*top, Text(), *_nothing(seen, width)]
    else:
        lines = [*top, *_headline(seen.snapshot, width), *_charts(seen, width, ink)]
        lines += _sections(seen, seen.snapshot, width, height - len(lines), ink)
    return [fit(line, width, ink) for line in lines[:height]]


def _title(seen: Seen, width: int) -> Text:
    where = Text(f"{seen.servers} {seen.prefix}", style=Tone.QUIET.value)
    name = joined(said(seen.run_id, Tone.STRONG), "  ", where)
    return name if cell_len(name.plain) <= width else said(seen.run_id, Tone.STRONG)


def _standing(seen: Seen) -> Iterator[Text]:
    """Whether what is shown is what there is, and how old it is."""
    if seen.reading is Reading.LIVE:
        yield Text("live", style=Tone.GOOD.value)
    elif seen.reading is Reading.CATCHING_UP:
        yield Text("catching up", style=Tone.LOOK.value)
    elif seen.reading is Reading.CUT_OFF:
        yield Text(f"! NO ANSWER for {age(seen.heard_s)}", style=Tone.BAD.value)
    else:
        yield Text("! waiting", style=Tone.BAD.value)
    if seen.snapshot is not None:
        yield said(f"last update {age(seen.snapshot_s)} ago (decision {seen.snapshot.sequence:,})")
    if seen.fault and seen.snapshot is not None:
        yield said(seen.fault, Tone.LOOK)


def _hint(hint: str) -> Iterator[Text]:
    if hint:
        yield Text(hint, style=Tone.QUIET.value)


def _nothing(seen: Seen, width: int) -> list[Text]:
    """Why there are no figures yet."""
    if seen.reading is Reading.CATCHING_UP:
        why = "looking for the run's last figures"
    elif seen.reading is Reading.LIVE:
        why = "the processor has not decided a record of this run yet: check the name, and `rollbook processor run`"
    else:
        why = seen.fault or "connecting"
    words, lines = said(why).plain.split(" "), [""]
    for word in words:
        lines[-1:] = [f"{lines[-1]} {word}".strip()] if len(lines[-1]) + len(word) < width else [lines[-1], word]
    return [Text(line) for line in lines]


def _headline(snapshot: FreshnessSnapshot, width: int) -> Iterator[Text]:
    yield from flowed(_policies(snapshot), width)
    yield from flowed(_ready(snapshot), width)
    yield from flowed(_room(snapshot), width)
    yield from flowed(_trouble(snapshot), width)


def _policies(snapshot: FreshnessSnapshot) -> Iterator[Text]:
    yield joined("active ", _policy(snapshot.active_policy))
    yield joined("learner ", _policy(snapshot.learner_policy))
    yield said(f"lag allowed {snapshot.max_lag} ({snapshot.lag_unit})", Tone.QUIET)


def _policy(policy: PolicyRef | None) -> Text:
    if policy is None:
        return Text("none")
    return joined(said(policy.version, Tone.STRONG), " ", said(policy.artifact_hash[:_HASH], Tone.QUIET))


def _ready(snapshot: FreshnessSnapshot) -> Iterator[Text]:
    yield joined("ready: fresh ", _count(snapshot.ready_fresh, Tone.STRONG))
    yield joined("tolerated ", _count(snapshot.ready_tolerated, Tone.STRONG))
    yield _warned("expiring", snapshot.ready_expiring, Tone.LOOK)
    yield _warned("stale", snapshot.ready_stale, Tone.BAD)
    if others := snapshot.ready_future + snapshot.ready_unknown:
        yield _warned("ahead or unknown", others, Tone.LOOK)


def _room(snapshot: FreshnessSnapshot) -> Iterator[Text]:
    if snapshot.capacity is None:
        yield Text("capacity not known yet", style=Tone.QUIET.value)
    else:
        rows = "" if snapshot.rows_per_update is None else f" of {plural(snapshot.rows_per_update, 'row')}"
        room = f"{snapshot.capacity:,} ({plural(snapshot.updates_left, 'update')}{rows})"
        yield joined("capacity ", Text(room, style=(Tone.STRONG if snapshot.capacity else Tone.LOOK).value))
    lags = ", ".join(f"{one.count:,} at lag {one.lag}" for one in snapshot.consumed_by_lag[:3])
    consumed = snapshot.consumed_lag_unknown + sum(one.count for one in snapshot.consumed_by_lag)
    yield joined("consumed ", _count(consumed, Tone.STRONG), f" ({lags})" if lags else "")


def _trouble(snapshot: FreshnessSnapshot) -> Iterator[Text]:
    yield joined("refused ", _count(sum(one.count for one in snapshot.refusals), Tone.STRONG))
    for stage in sorted({one.stage for one in snapshot.failures}):
        count = sum(one.count for one in snapshot.failures if one.stage == stage)
        yield joined(said(f"{stage} failures "), _count(count, Tone.LOOK))
    yield _warned("workers behind", snapshot.workers_behind, Tone.BAD)
    yield _warned("updates in doubt", snapshot.in_doubt_count, Tone.BAD)


def _count(count: int, tone: Tone) -> Text:
    return Text(f"{count:,}", style=tone.value)


def _warned(name: str, count: int, tone: Tone) -> Text:
    """Marked where there are any."""
    if not count:
        return joined(f"{name} ", Text("0", style=Tone.QUIET.value))
    return Text(f"! {name} {count:,}" if tone is Tone.BAD else f"{name} {count:,}", style=tone.value)


def _charts(seen: Seen, width: int, ink: Ink) -> Iterator[Text]:
    """The last minutes; their right end is now."""
    minutes = seen.minutes
    room = max(4, width - _LABEL)
    length = len(minutes.seconds) // 60
    yield Text(f"{f'last {length} min':<{_LABEL}}{ink.rule * room}", style=Tone.QUIET.value)
    for name, what in (("decisions/s", "decided"), ("refused/s", "refused")):
        course = minutes.course(what, room)
        most = max((one for one in course if one is not None), default=None)
        yield _chart(name, rate(minutes.per_second(what)), rate(most), sparkline(course, ink), room, Tone.CHART)
    admission = sparkline(minutes.admission(room), ink, top=1.0)
    yield _chart("admitted", share(minutes.admitted_share), "", admission, room, Tone.GOOD)


def _chart(name: str, now: str, top: str, chart: str, room: int, tone: Tone) -> Text:
    label = Text(f"{name:<12}{now:>6} {f'max {top}' if top else '':<{_LABEL - 19}}")
    return joined(label, Text(f"{chart:>{room}}", style=tone.value))


def _sections(seen: Seen, snapshot: FreshnessSnapshot, width: int, height: int, ink: Ink) -> list[Text]:
    if width < _BESIDE:
        every = (
            ready(snapshot, width, ink),
            refused(snapshot, seen.minutes),
            open_updates(seen, snapshot),
            workers(snapshot),
        )
        return stacked(every, height, ink)
    half = (width - 2) // 2
    left = stacked((ready(snapshot, half, ink), refused(snapshot, seen.minutes)), height, ink)
    right = stacked((open_updates(seen, snapshot), workers(snapshot)), height, ink)
    return beside(left, right, width, ink)
