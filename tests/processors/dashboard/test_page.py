"""What the page shows, on a real Chromium: each figure, and each chart."""

import pytest
from playwright.sync_api import Page

from rollbook.processors.dashboard.answers import Decisions, Frame, Now, Size
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.tests.processors.dashboard import sample
from rollbook.tests.processors.dashboard.page_server import PageServer
from rollbook.tests.processors.dashboard.page_tabs import (
    CHARTS,
    PHONE,
    Tabs,
    address,
    figure,
    wait_for_figure,
    wait_for_figures,
    width_left,
)
from rollbook.tests.processors.dashboard.sample_parts import decision
from rollbook.tests.processors.dashboard.sample_series import RUN


def now_of(frame: Frame) -> Now:
    assert frame.now is not None
    return frame.now


def snapshot_of(frame: Frame) -> FreshnessSnapshot:
    snapshot = now_of(frame).snapshot
    assert snapshot is not None
    return snapshot


def counted(counts: object, name: str) -> int:
    assert isinstance(counts, tuple)
    return sum(one.count for one in counts if one.name == name)


def test_the_figures_are_those_of_the_frame(page: Page, shown: Frame) -> None:
    snapshot, totals = snapshot_of(shown), now_of(shown).totals
    assert snapshot.active_policy is not None
    assert snapshot.learner_policy is not None
    plain = (
        "ready_fresh", "ready_tolerated", "ready_expiring", "ready_stale", "ready_stale_for_learner", "ready_unknown",
        "max_lag", "mean_lag", "capacity", "rows_per_update", "updates_left", "workers_behind", "worker_count",
        "open_update_count", "in_doubt_count",
    )  # fmt: skip
    expected = {name: getattr(snapshot, name) for name in plain} | {
        "active_version": snapshot.active_policy.version,
        "learner_version": snapshot.learner_policy.version,
        "drift_threshold": snapshot.max_mean_abs_log_ratio,
        "consumed": counted(totals.stages, "consumed"),
        "generated": counted(totals.stages, "generated"),
        "refused": sum(one.count for one in totals.refusals),
        "failures_generation": counted(totals.failures, "generation"),
        "failures_reward": counted(totals.failures, "reward"),
        "decisions": totals.decisions,
        "violations": totals.violations,
    }
    assert {name: float(figure(page, name)) for name in expected} == {
        name: pytest.approx(value) for name, value in expected.items()
    }
    assert page.locator('[data-figure="consumed"]').inner_text() == f"{expected['consumed']:,}"


def test_what_is_at_or_beyond_its_limit_says_so_in_words(page: Page) -> None:
    marks = {
        tile.get_attribute("data-tile"): tile.locator(".mark").inner_text()
        for tile in page.locator(".tile").all()
        if tile.locator(".mark").inner_text()
    }
    assert marks == {
        "ready_expiring": "▲ at the limit",
        "ready_stale": "◆ beyond the limit",
        "ready_stale_for_learner": "◆ beyond the limit",
        "capacity": "▲ workers should pause",
        "workers_behind": "▲ not on the active policy",
        "open_update_count": "▲ in doubt",
    }


def test_later_frames_change_figures_and_bring_only_the_windows_that_changed(
    tabs: Tabs, shown: Frame, page_server: PageServer
) -> None:
    page = tabs.open(f"#run={RUN}&size=10m")
    wait_for_figures(page)
    page.locator("[data-card=admission]").scroll_into_view_if_needed()
    page.wait_for_selector('[data-figure="window_admitted"]')
    before = int(figure(page, "window_admitted"))
    whole = sample.frame(Size.TEN_MINUTES)
    assert whole.series is not None
    last = whole.series.windows[-1]
    stages = tuple(
        one.model_copy(update={"count": one.count + 1_000}) if one.name == "admitted" else one for one in last.stages
    )
    series = whole.series.model_copy(update={"windows": (last.model_copy(update={"stages": stages}),), "revision": 8})
    snapshot = snapshot_of(whole).model_copy(update={"ready_stale": 777})
    now = now_of(whole).model_copy(update={"snapshot": snapshot})
    page_server.show(whole.model_copy(update={"series": series, "now": now}), Size.TEN_MINUTES, RUN)
    wait_for_figure(page, "ready_stale", 777)
    wait_for_figure(page, "window_admitted", before + 1_000)


def test_every_chart_is_drawn_and_says_what_it_shows_and_can_be_a_table(tabs: Tabs, shown: Frame) -> None:
    page = tabs.open()
    wait_for_figures(page)
    drawn = set()
    for chart in sorted(CHARTS):
        card = page.locator(f"[data-card={chart}]")
        card.scroll_into_view_if_needed()
        card.locator("canvas").first.wait_for()
        label = card.locator(".plot").get_attribute("aria-label") or ""
        assert len(label) > 20, chart
        named = card.locator("h3").evaluate("one => one.firstChild.textContent")
        page.get_by_role("button", name=f"Table: {named}", exact=True).click()
        assert card.locator(".table-view tbody tr").count() > 0, chart
        assert not card.locator(".plot").is_visible()
        drawn.add(chart)
    assert {card.get_attribute("data-card") for card in page.locator("[data-card]:has(.plot)").all()} == drawn


def test_what_is_so_far_and_what_is_of_windows_is_said(page: Page) -> None:
    for chart, mode, scope in (
        ("took", "Histogram", "so far"),
        ("took", "Mean over time", "last 43 min 20 s in windows of 10 s"),
        ("refusals", "Over time", "last 43 min 20 s in windows of 10 s"),
        ("refusals", "So far", "so far"),
    ):
        card = page.locator(f"[data-card={chart}]")
        card.scroll_into_view_if_needed()
        card.get_by_role("radio", name=mode).check()
        card.locator(".scope", has_text=scope).wait_for()


def test_a_chart_out_of_sight_is_not_drawn_but_for_paper(tabs: Tabs, shown: Frame) -> None:
    page = tabs.open(scheme="dark")
    wait_for_figures(page)
    assert page.locator("[data-card=updates] canvas").count() == 0
    page.locator("[data-card=drift]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-card=drift] canvas")
    assert page.locator("[data-card=updates] canvas").count() == 0
    text = "echarts.getInstanceByDom(document.querySelector('[data-card=drift] .plot')).getOption().textStyle.color"
    before = page.evaluate(text)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("[data-card]:has(.plot):not(:has(canvas))").count() == 0
    assert page.evaluate(text) != before
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(text) == before


def test_frames_in_quick_succession_are_drawn_once_a_second(tabs: Tabs, shown: Frame, page_server: PageServer) -> None:
    page = tabs.open()
    wait_for_figures(page)
    page.evaluate(
        """() => {
          const chart = echarts.getInstanceByDom(document.querySelector("[data-card=heat] .plot"));
          const draw = chart.setOption.bind(chart);
          window.drawn = 0;
          chart.setOption = (...option) => { window.drawn += 1; return draw(...option); };
        }"""
    )
    started = page.evaluate("performance.now()")
    for stale in range(100, 130):
        snapshot = snapshot_of(shown).model_copy(update={"ready_stale": stale})
        now = now_of(shown).model_copy(update={"snapshot": snapshot})
        page_server.show(shown.model_copy(update={"now": now}), Size.TEN_SECONDS, RUN)
        page.wait_for_timeout(60)  # the pace is what is tested
    wait_for_figure(page, "ready_stale", 129)
    took_s = (page.evaluate("performance.now()") - started) / 1000
    assert 1 <= page.evaluate("window.drawn") <= took_s + 1  # of 30 frames


def test_decisions_are_filtered_and_lead_to_the_history_of_a_trajectory(
    tabs: Tabs, shown: Frame, page_server: PageServer
) -> None:
    lines = now_of(shown).decisions
    trajectory_id = lines[0].trajectory_ids[0]
    page_server.histories[trajectory_id] = sample.trajectory(trajectory_id)
    page = tabs.open(size=PHONE)
    page.wait_for_selector("[data-card=decisions] tbody tr")
    assert page.locator("[data-card=decisions] tbody tr").count() == len(lines)
    page.get_by_label("All outcomes").select_option("rejected")
    assert page.locator("[data-card=decisions] tbody tr").count() == sum(one.outcome == "rejected" for one in lines)
    page.get_by_label("All outcomes").select_option("")
    page.get_by_label("All records").select_option("Reserve")
    assert page.locator("[data-card=decisions] tbody tr").count() == sum(one.record_type == "Reserve" for one in lines)
    page.get_by_label("All records").select_option("")
    left = page.locator(f'[data-sequence="{lines[0].sequence}"] a')
    left.click()
    page.wait_for_selector("#trajectory .path")
    assert page.evaluate("document.activeElement.id") == "trajectory-title"
    assert page.title() == f"{trajectory_id} · {RUN} · rollbook"
    assert address(page)["trajectory"] == trajectory_id
    assert page.locator("#trajectory .path li").all_inner_texts()[-1] == "consumed"
    assert page.locator("#trajectory tbody tr").count() == len(page_server.histories[trajectory_id].steps)
    assert width_left(page) == 0
    page.get_by_role("link", name="All figures").click()
    page.wait_for_selector("#figures:not([hidden])")
    assert left.evaluate("one => one === document.activeElement")
    assert page.evaluate("scrollY") > 1_000


def test_the_board_says_who_is_missing(page: Page) -> None:
    newest = page.locator('[data-policy="27"]')
    assert figure(page, "acks_v27") == "4"
    assert "4/8" in newest.inner_text()
    assert "worker-4, worker-5" in newest.inner_text()
    assert "missing worker ack" in newest.inner_text()
    workers = page.locator("[data-worker]").evaluate_all(
        "rows => rows.map((row) => [row.dataset.worker, row.dataset.standing])"
    )
    assert workers[:2] == [["worker-6", "bad"], ["worker-7", "bad"]]
    assert ["evaluator", "other"] in workers


def test_decisions_older_than_those_of_the_frame_are_loaded(tabs: Tabs, shown: Frame, page_server: PageServer) -> None:
    newest = now_of(shown).decisions
    older = tuple(decision(newest[-1].sequence - back) for back in range(1, 40))
    page_server.decisions = Decisions(run_id=RUN, decisions=(*newest, *older))
    page = tabs.open()
    page.wait_for_selector("[data-card=decisions] tbody tr")
    page.get_by_role("button", name="Load 500").click()
    page.wait_for_selector(f'[data-sequence="{older[-1].sequence}"]', state="attached")
    rows = page.locator("[data-card=decisions] tbody tr").evaluate_all(
        "rows => rows.map((row) => +row.dataset.sequence)"
    )
    assert rows == [line.sequence for line in (*newest, *older)]
