"""How the page stands when there is nothing to show, or what it shows is in doubt."""

from rollbook.processors.dashboard.answers import Activation, Frame, Reading, Runs, Size
from rollbook.schemas.records.decision import LagCount
from rollbook.tests.processors.dashboard import sample
from rollbook.tests.processors.dashboard.page_server import PageServer
from rollbook.tests.processors.dashboard.page_tabs import (
    CHARTS,
    PHONE,
    Tabs,
    address,
    wait_for_figure,
    wait_for_figures,
    width_left,
)
from rollbook.tests.processors.dashboard.sample_series import NOW_MS, RUN, at, totals
from rollbook.tests.processors.dashboard.sample_snapshot import snapshot

GONE = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
"""What a browser notes when the server goes away."""


def test_no_run_yet_says_how_to_begin(tabs: Tabs, page_server: PageServer) -> None:
    page_server.show(sample.empty())
    page = tabs.open(size=PHONE)
    page.wait_for_selector("[data-message=empty]")
    assert "rollbook demo" in page.locator("#message").inner_text()
    assert width_left(page) == 0
    page_server.show(sample.frame())  # the first run appears by itself
    wait_for_figures(page)


def test_from_nothing_to_live_and_cut_off_each_state_is_said(tabs: Tabs, page_server: PageServer) -> None:
    page = tabs.open()
    page.wait_for_selector("#loading:not([hidden])[aria-busy=true]")
    assert page.locator("#connection").inner_text().strip() == "◌Connecting"

    fault = "no broker at localhost:9092: start one"
    page_server.show(sample.empty(Reading.WAITING, fault=fault, behind=None))
    page.wait_for_selector("[data-message=waiting]")
    assert fault in page.locator("#message").inner_text()
    assert "rollbook.decisions" in page.locator("#message").inner_text()

    page_server.show(sample.empty(Reading.CATCHING_UP, behind=400_000))
    page.wait_for_selector("[data-message=catching_up] progress")
    assert "184,223 records read, 400,000 to go" in page.locator("#message").inner_text()
    page_server.show(sample.frame(reading=Reading.CATCHING_UP))
    wait_for_figures(page)
    assert "12,345 to go" in page.locator("[data-banner=catching_up]").inner_text()

    page_server.show(sample.frame(reading=Reading.CUT_OFF, fault="the broker does not answer"))
    page.wait_for_selector("[data-banner=cut_off]")
    assert "the broker does not answer" in page.locator("[data-banner=cut_off]").inner_text()
    assert "grayscale" in page.locator("[data-card=heat] .plot").evaluate("one => getComputedStyle(one).filter")

    usual = sample.frame()
    skipped = usual.status.model_copy(update={"unreadable": 160})
    page_server.show(usual.model_copy(update={"status": skipped}))
    page.get_by_text("◆ 160 records could not be read, and were skipped").wait_for()
    assert page.locator("[data-banner]").count() == 0


def test_a_run_that_is_not_known_offers_those_that_are(tabs: Tabs, page_server: PageServer) -> None:
    known = sample.frame()
    page_server.show(known.model_copy(update={"now": None, "series": None}))
    page = tabs.open("#run=another&size=10s")
    page.wait_for_selector("[data-message=unknown_run]")
    page_server.show(known)
    page.get_by_role("link", name=RUN).click()
    wait_for_figures(page)


def test_a_run_that_cannot_be_is_said_once_and_the_others_are_offered(tabs: Tabs, page_server: PageServer) -> None:
    tabs.awaited = ("404",)
    known = sample.frame()
    page_server.show(known)
    page_server.show(known.model_copy(update={"now": None, "series": None}), Size.TEN_SECONDS, "")
    page = tabs.open(f"#run={'x' * 257}&size=10s", clock=True)
    page.wait_for_selector("[data-message=no_run]")
    assert page.locator("#message h2").inner_text().startswith("There is no run xxx")
    assert "the longest has 256 characters" in page.locator("#message").inner_text()
    assert page.locator("#connection").get_attribute("data-standing") == "live"
    page.clock.run_for(5_000)  # it would have tried again after one second
    assert sum("run=xxx" in path for path in page_server.asked) == 2  # the stream, and why it is refused
    page.get_by_role("link", name=RUN).click()
    wait_for_figures(page)


def test_records_of_no_run_come_last_and_say_what_they_are(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.frame()
    assert frame.now is not None
    stray = frame.now.run.model_copy(update={"run_id": "~partition-0", "last_ms": NOW_MS})
    alone = frame.model_copy(update={"runs": Runs(runs=(stray,), left_out=0), "now": None, "series": None})
    page_server.show(alone, Size.TEN_SECONDS, "")
    page_server.show(frame.model_copy(update={"now": frame.now.model_copy(update={"run": stray})}))
    page = tabs.open()
    page.wait_for_selector("[data-message=empty]")
    assert "Records came that are of no run" in page.locator("#message").inner_text()
    page.get_by_role("link", name="~partition-0").click()
    wait_for_figures(page)
    assert page.locator(".run-about").inner_text().startswith("records of no run")

    both = frame.model_copy(update={"runs": Runs(runs=(stray, *frame.runs.runs), left_out=0)})
    for run in ("", RUN):
        page_server.show(both, Size.TEN_SECONDS, run)
    page.goto(page_server.url)
    wait_for_figures(page)
    assert address(page)["run"] == RUN
    page.get_by_role("combobox", name="Run").click()
    assert (
        page.get_by_role("listbox")
        .get_by_role("option")
        .last.inner_text()
        .startswith("~partition-0\nrecords of no run")
    )


def test_a_run_that_stands_still_is_marked_and_its_windows_say_until_when(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.frame()
    assert frame.now is not None
    later = frame.status.model_copy(update={"now_ms": NOW_MS + 500_000})
    page_server.show(frame.model_copy(update={"status": later}))
    page = tabs.open()
    wait_for_figures(page)
    assert page.locator(".run-about").inner_text() == "▲ silent for 8 min · last decision at 10:59:59"
    scope = page.locator("[data-card=heat] .scope").inner_text()
    assert scope == "43 min 20 s until 11:00:00, 8 min ago, in windows of 10 s"
    assert page.locator("#connection").get_attribute("data-standing") == "live"
    for changed, said in (({"closed": True}, "closed"), ({"since": 0}, "only its last snapshot")):
        now = frame.now.model_copy(update={"run": frame.now.run.model_copy(update=changed)})
        page_server.show(frame.model_copy(update={"status": later, "now": now}))
        page.locator(".run-about", has_text=said).wait_for()
        assert page.locator("[data-about=silent]").count() == 0
    old = later.model_copy(update={"reading": Reading.CUT_OFF})
    page_server.show(frame.model_copy(update={"status": old}))
    page.locator(".run-about", has_text="last decision 8 min").wait_for()
    assert page.locator("[data-about=silent]").count() == 0


def test_a_run_without_a_snapshot_shows_what_was_decided(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.frame()
    assert frame.now is not None
    page_server.show(frame.model_copy(update={"now": frame.now.model_copy(update={"snapshot": None})}))
    page = tabs.open()
    wait_for_figures(page)
    assert page.locator('[data-tile="ready"]').inner_text().endswith("no snapshot yet")
    wait_for_figure(page, "decisions", frame.now.totals.decisions)
    page.locator("[data-card=queue]").scroll_into_view_if_needed()
    page.get_by_text("No freshness snapshot was read yet.").wait_for()


def test_a_server_that_went_away_is_said_and_found_again(tabs: Tabs, page_server: PageServer) -> None:
    tabs.awaited = GONE
    page_server.show(sample.frame())
    page = tabs.open()
    wait_for_figures(page)
    page_server.stop()
    page.wait_for_selector("[data-banner=late]")
    assert page.locator("#connection").get_attribute("data-standing") == "late"
    assert page.locator("#figures").is_visible()
    page_server.start()
    page.wait_for_selector("#connection[data-standing=live]", timeout=20_000)
    assert page.locator("[data-banner]").count() == 0


def test_a_server_that_is_silent_is_said_and_asked_anew(tabs: Tabs, page_server: PageServer) -> None:
    page_server.heartbeats = False
    page_server.show(sample.frame())
    page = tabs.open(f"#run={RUN}&size=10s", clock=True)
    wait_for_figures(page)
    page.clock.run_for(9_000)
    page.wait_for_selector("[data-banner=late]")
    before = sum("/api/stream" in path for path in page_server.asked)
    page.clock.run_for(4_000)
    page.wait_for_selector("#connection[data-standing=live]")  # a stream that is opened anew brings a frame
    assert sum("/api/stream" in path for path in page_server.asked) == before + 1


def test_a_stream_that_is_refused_says_why_and_is_tried_again(tabs: Tabs, page_server: PageServer) -> None:
    tabs.awaited = ("503",)
    page_server.refusal = "64 streams are open already: close a page"
    page_server.show(sample.frame())
    page = tabs.open(f"#run={RUN}")
    page.get_by_text("64 streams are open already").first.wait_for()
    assert page.locator("#message h2").inner_text() == "The dashboard answers with an error"
    page_server.refusal = ""
    wait_for_figures(page)
    assert page.locator("[data-banner]").count() == 0


def test_what_begins_anew_replaces_the_windows_and_says_from_where_it_counts(
    tabs: Tabs, page_server: PageServer
) -> None:
    frame = sample.frame()
    assert frame.series is not None
    assert frame.now is not None
    page_server.show(frame)
    page = tabs.open(f"#run={RUN}&size=10s")
    wait_for_figures(page)
    assert page.locator(".tile .scope").all_inner_texts() == ["so far"] * 4
    page.locator("[data-card=admission]").scroll_into_view_if_needed()
    again = frame.status.model_copy(update={"instance": "instance-2"})
    back = frame.now.model_copy(update={"run": frame.now.run.model_copy(update={"since": 31})})
    for few, changed in ((5, {"status": again}), (3, {"status": again, "now": back})):
        kept = frame.series.model_copy(update={"windows": frame.series.windows[-few:], "revision": 900 - few})
        page_server.show(frame.model_copy(update={"series": kept, **changed}))
        admitted = sum(one.count for window in kept.windows for one in window.stages if one.name == "admitted")
        wait_for_figure(page, "window_admitted", admitted)
    assert page.locator(".tile .scope").all_inner_texts() == ["since decision 31"] * 4
    assert "counted from decision 31 on" in page.locator(".run-about").inner_text()
    assert "Since decision 31: " in page.locator("[data-card=admission] .caption").inner_text()


def test_without_what_draws_charts_their_tables_are_shown(tabs: Tabs, shown: Frame) -> None:
    tabs.awaited = ("ERR_FAILED",)
    page = tabs.open(without="**/echarts.min.js")
    page.wait_for_selector("[data-banner=no_charts]")
    for chart in CHARTS:
        card = page.locator(f"[data-card={chart}]")
        card.scroll_into_view_if_needed()
        card.locator(".table-view tbody tr").first.wait_for()
        assert not card.locator(".plot").is_visible()
        assert not card.get_by_role("button", name="Table").is_visible()


def test_every_limit_and_range_of_lags_is_drawn(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.frame()
    assert frame.series is not None
    assert frame.now is not None
    page_server.show(sample.frame())
    page = tabs.open(f"#run={RUN}&size=10s")
    wait_for_figures(page)
    rows = page.locator("[data-card=consumed-lag]")
    for max_lag, lags in ((0, (0,)), (2, tuple(range(-1, 65))), (0, (-1, 0, 1)), (1_000, (0, 3))):
        counted = at(dict.fromkeys(lags, 7))
        windows = tuple(
            window.model_copy(update={"judged_by_lag": counted, "ready_by_lag": counted})
            for window in frame.series.windows[-40:]
        )
        ready = tuple(LagCount(lag=lag, count=7) for lag in lags)
        now = frame.now.model_copy(
            update={
                "snapshot": snapshot(max_lag=max_lag, ready_by_lag=ready),
                "totals": frame.now.totals.model_copy(update={"consumed_by_lag": counted}),
            }
        )
        series = frame.series.model_copy(update={"windows": windows})
        page_server.show(frame.model_copy(update={"now": now, "series": series}))
        wait_for_figure(page, "max_lag", max_lag)
        for chart in ("heat", "queue", "consumed-lag"):
            card = page.locator(f"[data-card={chart}]")
            card.scroll_into_view_if_needed()
            card.locator("canvas").first.wait_for(state="attached")
        rows.get_by_role("button", name="Table").click()
        assert rows.locator("tbody tr").count() == len(lags)
        rows.get_by_role("button", name="Table").click()


def test_a_run_in_which_nothing_happened_yet_has_blanks_that_say_so(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.frame()
    assert frame.series is not None
    assert frame.now is not None
    now = frame.now.model_copy(
        update={"totals": totals(()), "updates": (), "activation": Activation(workers=(), policies=()), "decisions": ()}
    )
    series = frame.series.model_copy(update={"windows": ()})
    page_server.show(frame.model_copy(update={"now": now, "series": series}))
    page = tabs.open()
    page.wait_for_selector("body[data-view=figures]")
    for chart in sorted(set(CHARTS) - {"queue", "drift-floor"}):
        card = page.locator(f"[data-card={chart}]")
        card.scroll_into_view_if_needed()
        card.locator(".blank:not([hidden])").wait_for()
        assert card.locator("canvas").count() == 0
    assert "No decision was read yet." in page.locator("[data-card=decisions]").inner_text()
    assert "No policy is known yet." in page.locator("[data-card=board]").inner_text()
