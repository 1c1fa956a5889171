"""What `rollbook watch` draws: pure, in any size, and never more than text."""

import json
from dataclasses import replace
from io import StringIO
from itertools import product

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rollbook.infra.watching.charts import ASCII, BLOCKS, Ink, age, bar, ink_for, rate, share, sparkline
from rollbook.infra.watching.frame import frame
from rollbook.infra.watching.page import Section, fit, flowed, stacked
from rollbook.infra.watching.plain import as_json, line
from rollbook.infra.watching.seen import Minutes, Second, Seen
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.freshness import snapshot
from rollbook.tests.infra.test_freshness_page import HOSTILE, lived

NOW = 1_000_000_000
SIZES = tuple(product((1, 2, 7, 20, 40, 76, 80, 200), (1, 2, 5, 16, 24, 60)))


def seen(reading: Reading = Reading.LIVE, **changed: object) -> Seen:
    """The run of the other page, ten minutes into its life, of which five seconds were read."""
    seconds = (*(None,) * 295, *(Second(decided=4, admitted=3, turned_away=1, refused=2),) * 5)
    found = Seen(
        run_id="run-a",
        servers="127.0.0.1:9092",
        prefix="rollbook.",
        reading=reading,
        fault="",
        now_ms=NOW,
        heard_s=12.0,
        snapshot=snapshot(lived().run),
        snapshot_ms=NOW - 3_000,
        minutes=Minutes(NOW - 299_000, seconds, (("Admit", "policy_drift", 1),)),
        leases=(("u1", NOW + 42_000),),
    )
    return replace(found, **changed)  # type: ignore[arg-type]


def drawn(what: Seen, width: int = 80, height: int = 24, ink: Ink = BLOCKS) -> list[str]:
    """Its lines, their blanks evened out."""
    return [" ".join(one.plain.split()) for one in frame(what, width, height, ink)]


@pytest.mark.parametrize(
    ("values", "top", "chart"),
    [
        ((), None, ""),
        ((0, 1, 2, 4, 8), None, " ▂▃▅█"),
        ((None, 0.001, 8), None, " ▁█"),
        ((1, 1), None, "██"),
        ((0, 0), None, "  "),
        ((0.5, 1.0, 2.0), 1.0, "▅██"),
        ((-1,), None, " "),
    ],
)
def test_a_sparkline(values: tuple[float | None, ...], top: float | None, chart: str) -> None:
    assert sparkline(values, BLOCKS, top) == chart


@pytest.mark.parametrize(
    ("value", "top", "width", "chart"),
    [
        (4, 4, 3, "███"),
        (2, 4, 3, "█▌"),
        (1, 10_000, 3, "▏"),
        (9, 4, 3, "███"),
        (0, 4, 3, ""),
        (1, 0, 3, ""),
        (1, 1, 0, ""),
    ],
)
def test_a_bar(value: float, top: float, width: int, chart: str) -> None:
    assert bar(value, top, width, BLOCKS) == chart


@pytest.mark.parametrize(
    ("encoding", "ink"), [("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII), ("no such", ASCII)]
)
def test_what_an_output_cannot_show_is_drawn_in_ascii(encoding: str, ink: Ink) -> None:
    assert ink_for(encoding) is ink
    assert bar(2, 4, 4, ASCII) == "##"


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (age(None), "?"),
        (age(0.9), "0 s"),
        (age(119), "119 s"),
        (age(120), "2 min"),
        (age(7_200), "2 h"),
        (age(180_000), "2 d"),
        (rate(None), "?"),
        (rate(0.0), "0.0"),
        (rate(0.04), "0.04"),
        (rate(12.34), "12.3"),
        (rate(2_500.0), "2,500"),
        (share(None), "?"),
        (share(1.0), "100%"),
        (share(0.999), ">99%"),
        (share(0.001), "<1%"),
        (share(0.0), "0%"),
    ],
)
def test_figures_in_few_characters(said: str, text: str) -> None:
    assert said == text


def test_a_cut_line_shows_it_also_of_wide_characters() -> None:
    assert fit(Text("abcdef"), 6, BLOCKS).plain == "abcdef"
    assert fit(Text("abcdefg"), 6, BLOCKS).plain == "abcde…"
    assert fit(Text("abcdefg"), 6, ASCII).plain == "abc..."
    assert cell_len(fit(Text("日本語日本語"), 6, BLOCKS, pad=True).plain) == 6


def test_what_has_no_room_goes_to_the_next_line() -> None:
    assert [one.plain for one in flowed(map(Text, ("ab", "cd", "efghij")), 8)] == ["ab   cd", "efghij"]


def test_sections_share_what_there_is() -> None:
    many, few = (
        Section(name, tuple(Text(f"{name}{at}") for at in range(count))) for name, count in (("m", 9), ("f", 2))
    )
    nothing = Section("n", ())
    assert [one.plain for one in stacked((many, nothing, few), 8, BLOCKS)] == [
        *("m (4 of 9)", "m0", "m1", "m2", "m3"),
        *("f", "f0", "f1"),
    ]
    assert [one.plain for one in stacked((many, few), 3, BLOCKS)] == ["m (2 of 9)", "m0", "m1"]
    assert stacked((many, few), 1, BLOCKS) == []


@pytest.mark.parametrize(
    "text",
    [
        "run-a 127.0.0.1:9092 rollbook.",
        "live last update 3 s ago (decision 25)",
        "active 1 weights- learner 2 weights- lag allowed 1 (depth)",
        "ready: fresh 0 tolerated 1 expiring 1 stale 0",
        "capacity 0 (0 updates of 2 rows) consumed 2 (2 at lag 0)",
        "refused 1 generation failures 1 ! workers behind 1 ! updates in doubt 1",
        "decisions/s 4.0 max 4.0 █",
        "refused/s 2.0 max 2.0 █",
        "admitted 75% ▆",
        "Ready by lag Open updates",
        "lag 1 1 █████████ expires next ! IN DOUBT u1 started, holds 1",
        "1 +1 Admit policy_drift ! failed [red]w1\\u202e load_failed",
        "active w0",
    ],
)
def test_it_is_on_the_frame(text: str) -> None:
    assert text in drawn(seen())


@pytest.mark.parametrize("ink", [BLOCKS, ASCII])
@pytest.mark.parametrize("reading", Reading)
def test_a_frame_fits_every_size(reading: Reading, ink: Ink) -> None:
    shown = seen(reading, fault="a broker that is away " * 20)
    for width, height in SIZES:
        for what in (shown, replace(shown, snapshot=None)):
            lines = frame(what, width, height, ink, "q ends")
            assert 1 <= len(lines) <= height
            assert max(cell_len(one.plain) for one in lines) <= width


def test_at_forty_columns_the_sections_stand_below_each_other() -> None:
    lines = drawn(seen(), 40, 30)
    titles = ["Ready by lag", "Refused: so far, lately", "Open updates", "Workers"]
    assert [one for one in lines if one in titles] == titles
    assert "active silent" in lines


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (seen(Reading.WAITING, fault="no broker answers", snapshot=None), "no broker answers"),
        (seen(Reading.WAITING, snapshot=None), "connecting"),
        (seen(Reading.CATCHING_UP, snapshot=None), "looking for the run's last figures"),
        (seen(snapshot=None), "the processor has not decided a record of this run yet: check the name, and"),
        (seen(Reading.CUT_OFF), "! NO ANSWER for 12 s last update 3 s ago (decision 25)"),
        (
            seen(Reading.CUT_OFF, fault="it is away"),
            "! NO ANSWER for 12 s last update 3 s ago (decision 25) it is away",
        ),
        (seen(Reading.CATCHING_UP), "catching up last update 3 s ago (decision 25)"),
    ],
)
def test_where_it_stands_is_said(what: Seen, text: str) -> None:
    assert text in drawn(what)


@pytest.mark.parametrize(
    ("left_s", "lease_ms", "text"),
    [
        (42, 60_000, "lease 42 s u1 started, holds 1"),
        (-3, 60_000, "! lease over for 3 s u1 started, hold…"),
        (42, 0, "no lease u1 started, holds 1"),
    ],
)
def test_what_is_left_of_a_lease(left_s: int, lease_ms: int, text: str) -> None:
    found = seen(leases=(("u1", NOW + left_s * 1_000),))
    assert found.snapshot is not None
    update = found.snapshot.updates[0].model_copy(update={"in_doubt": False, "lease_ms": lease_ms})
    lines = drawn(replace(found, snapshot=found.snapshot.model_copy(update={"updates": (update,)})))
    assert any(one.endswith(text) for one in lines), lines


def test_the_next_lease_to_end_comes_first() -> None:
    found = seen(leases=(("a", NOW + 9_000), ("b", NOW + 3_000)))
    assert found.snapshot is not None
    one = found.snapshot.updates[0].model_copy(update={"in_doubt": False})
    updates = tuple(one.model_copy(update={"update_id": name}) for name in ("c", "a", "b"))
    lines = drawn(replace(found, snapshot=found.snapshot.model_copy(update={"updates": updates})), 40, 40)
    at = lines.index("Open updates")
    assert [" ".join(one.split()[:3]) for one in lines[at + 1 : at + 4]] == ["lease 3 s", "lease 9 s", "lease ? c"]


HARM = "[bold red]x[/]\x1b[2J\x9b31m\r\n\u202e\u2066\ud800"


def test_nothing_that_a_record_says_draws_anything() -> None:
    found = seen(run_id=HARM, fault=HARM, reading=Reading.CUT_OFF)
    assert found.snapshot is not None
    hostile = found.snapshot.but(
        lag_unit=HARM,
        refusals=(found.snapshot.refusals[0].but(record_type=HARM, reason=HARM),),
        failures=(found.snapshot.failures[0].but(stage=HARM),),
        updates=(found.snapshot.updates[0].but(update_id=HARM, status=HARM),),
        workers=tuple(one.but(worker_id=HARM) for one in found.snapshot.workers),
    )
    for what in (replace(found, snapshot=hostile), replace(found, snapshot=None)):
        out = StringIO()
        console = Console(file=out, width=400, force_terminal=True, color_system="standard")
        for one in frame(what, 400, 60, BLOCKS):
            console.print(one)
        text = out.getvalue()
        assert "[bold red]x[/]" in text
        for bad in ("\x1b[2J", "\x9b", "\r", "\u202e", "\u2066", "\ud800"):
            assert bad not in text
        assert line(what).isprintable()
        assert json.dumps(as_json(replace(what, run_id=HOSTILE))).isascii()


def test_the_line_and_the_json() -> None:
    assert line(seen()) == (
        "run-a: live; updated 3 s ago; active 1, learner 2; ready 0 fresh, 1 tolerated (1 expiring), 0 stale; "
        "capacity 0; consumed 2; refused 1; failed 1; 1 worker behind, 1 update in doubt; 4.0 decisions/s, 75% admitted"
    )
    assert line(seen(Reading.CUT_OFF, fault="it is away")).startswith("run-a: NO ANSWER for 12 s (it is away); updated")
    assert line(seen(Reading.WAITING, snapshot=None)) == "run-a: waiting (connecting)"
    assert line(seen(snapshot=None)) == "run-a: live, nothing decided of it yet"
    told = as_json(seen())
    assert told["recent"] == {
        "seconds": 5,
        "decided": 20,
        "admitted": 15,
        "turned_away": 5,
        "refusals": [{"record_type": "Admit", "reason": "policy_drift", "count": 1}],
    }
    assert (told["reading"], told["decisions_per_s"], told["refused_per_s"]) == ("live", 4.0, 2.0)
    assert (told["heard_s"], told["snapshot_s"], told["lease_ends_ms"]) == (12.0, 3.0, {"u1": NOW + 42_000})
    assert told["snapshot"]["ready_expiring"] == 1


def test_columns_end_now_and_what_was_not_read_is_no_zero() -> None:
    minutes = seen().minutes
    assert minutes.course("decided", 300)[-5:] == [None, 4.0, 4.0, 4.0, 4.0]
    assert minutes.admission(60)[-2:] == [None, 0.75]
    assert minutes.course("decided", 1) == [4.0]
    assert all(1 <= len(minutes.course("decided", width)) <= width for width in range(1, 320))


def test_what_has_happened_stays_in_its_column() -> None:
    counts = [(at * 7) % 11 for at in range(320)]

    def course(first: int) -> list[float | None]:
        seconds = tuple(Second(decided=one) for one in counts[first : first + 300])
        return Minutes(first * 1_000, seconds, ()).course("decided", 60)

    assert course(1)[2:] == course(6)[1:-1]
    assert course(1)[3:] == course(11)[1:-2]
