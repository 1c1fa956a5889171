"""Windows and totals of a run that never was: a load that breathes, with a stale burst in its last fifth."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping

from rollbook.processors.dashboard.answers import At, Count, DriftCount, Refusals, Series, Size, Took, Totals, Window

RUN = "qwen3-8b/grpo-07"
NOW_MS = 1_764_500_400_000
MAX_LAG = 3
SIZE_MS = {Size.SECOND: 1_000, Size.TEN_SECONDS: 10_000, Size.MINUTE: 60_000, Size.TEN_MINUTES: 600_000}
KEPT = {Size.SECOND: 300, Size.TEN_SECONDS: 360, Size.MINUTE: 720, Size.TEN_MINUTES: 1_008}
DRIFT_BOUNDS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0)
TOOK_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
REASONS = ("stale_policy", "policy_drift", "not_rewarded", "revision_conflict", "eval_only", "future_policy")
LIFECYCLE = ("dispatched", "generated", "rewarded", "reserved", "admitted", "consumed", "discarded")


def window(start_ms: int, size_ms: int, rng: random.Random, progress: float) -> Window:
    """One window: a load that breathes, with staleness that rises in the last fifth of the run."""
    load = size_ms / 1000 * rng.uniform(6, 9)
    burst = progress > 0.82
    lags = Counter[int]()
    for lag, share in enumerate((0.42, 0.3, 0.18, 0.08, 0.02) if not burst else (0.15, 0.2, 0.25, 0.22, 0.12, 0.06)):
        lags[lag] = round(load * share * rng.uniform(0.7, 1.3))
    stale = sum(n for lag, n in lags.items() if lag > MAX_LAG)
    drifted = round(load * rng.uniform(0.0, 0.04))
    consumed = {lag: n for lag, n in lags.items() if lag <= MAX_LAG}
    admitted = max(0, sum(consumed.values()) - drifted)
    stages = dict(
        zip(LIFECYCLE, (load * 1.1, load, load * 0.97, load * 0.9, admitted, admitted * 0.97, load * 0.05), strict=True)
    )
    drift = drift_counts(rng, admitted, drifted)
    took = spread(TOOK_BOUNDS, admitted, rng.gauss(4.0, 0.4))
    active = 3 + int(progress * 24)
    ready = {lag: round(n * 4.2) for lag, n in lags.items()}
    refusals = [
        ("Reserve", REASONS[0], stale),
        ("Admit", REASONS[1], drifted),
        ("Reserve", REASONS[2], rng.randint(0, 3)),
    ]
    if rng.random() < 0.2:
        refusals.append(("Activate", "missing_worker_ack", 1))
    if rng.random() < 0.25:
        refusals.append(("Reserve", rng.choice(REASONS[3:]), rng.randint(1, 6)))
    failed = {"generation": rng.randint(0, 2) + 5 * (rng.random() < 0.05), "reward": rng.randint(0, 1)}
    return Window(
        start_ms=start_ms,
        decisions=round(load * 3.1),
        stages=counts({name: round(n) for name, n in stages.items()}),
        failures=counts(failed),
        outcomes=counts({"accepted": round(load * 3), "rejected": round(load * 0.08), "duplicate": 1}),
        violations=0,
        refusals=tuple(Refusals(record_type=of, reason=why, count=n) for of, why, n in refusals if n),
        judged_by_lag=at(lags),
        consumed_by_lag=at(consumed),
        drift=drift,
        took=tuple(Took(up_to_s=bound, count=n) for bound, n in took if n),
        took_count=sum(n for _, n in took),
        took_sum_s=sum((bound or 400.0) * 0.7 * n for bound, n in took),
        ready_by_lag=at(ready) if rng.random() > 0.06 else None,
        ready_by_version=at({active - lag: n for lag, n in ready.items() if active >= lag}),
    )


def drift_counts(rng: random.Random, admitted: int, refused: int) -> tuple[DriftCount, ...]:
    passed = dict(spread(DRIFT_BOUNDS[:8], admitted, rng.gauss(5.2, 0.3)))
    passed[DRIFT_BOUNDS[8]] = passed.pop(None)  # what is above the threshold of 0.05 is refused
    failed = dict(spread(DRIFT_BOUNDS[9:], refused, 0.6))
    bins = [
        DriftCount(up_to=bound, admitted=passed.get(bound, 0), refused=failed.get(bound, 0))
        for bound in (*DRIFT_BOUNDS, None)
    ]
    return tuple(one for one in bins if one.admitted + one.refused)


def spread(bounds: tuple[float, ...], total: int, centre: float) -> list[tuple[float | None, int]]:
    """A total over bins, around one of them; the last bin has no bound."""
    weights = [2.0 ** -abs(place - centre) for place in range(len(bounds) + 1)]
    whole = [int(total * weight / sum(weights)) for weight in weights]
    whole[min(len(whole) - 1, max(0, round(centre)))] += total - sum(whole)
    return list(zip((*bounds, None), whole, strict=True))


def counts(named: Mapping[str, int]) -> tuple[Count, ...]:
    return tuple(Count(name=name, count=n) for name, n in named.items() if n)


def at(found: Mapping[int, int]) -> tuple[At, ...]:
    return tuple(At(at=place, count=found[place]) for place in sorted(found) if found[place])


def series(size: Size = Size.TEN_SECONDS, windows: int = 260, run_id: str = RUN, revision: int = 7) -> Series:
    rng = random.Random(9)
    size_ms = SIZE_MS[size]
    windows = min(windows, KEPT[size])
    newest = NOW_MS - NOW_MS % size_ms
    starts = [newest - (windows - 1 - place) * size_ms for place in range(windows)]
    made = [window(start, size_ms, rng, place / windows) for place, start in enumerate(starts)]
    holes = range(windows // 3, windows // 3 + 3)  # nothing happened: left out, as the contract says
    kept = tuple(one for place, one in enumerate(made) if place not in holes)
    return Series(run_id=run_id, size=size, size_ms=size_ms, kept=KEPT[size], revision=revision, windows=kept)


def totals(windows: tuple[Window, ...]) -> Totals:
    """All windows together: what the run has had so far."""
    drift: Counter[tuple[float | None, bool]] = Counter()
    for one in windows:
        for bin_ in one.drift:
            drift[bin_.up_to, True] += bin_.admitted
            drift[bin_.up_to, False] += bin_.refused
    bounds: tuple[float | None, ...] = (*DRIFT_BOUNDS, None)
    took = Counter(dict.fromkeys((*TOOK_BOUNDS, None), 0))
    refused: Counter[tuple[str, str]] = Counter()
    for one in windows:
        took.update({bin_.up_to_s: bin_.count for bin_ in one.took})
        refused.update({(line.record_type, line.reason): line.count for line in one.refusals})
    return Totals(
        decisions=sum(one.decisions for one in windows),
        stages=summed(one.stages for one in windows),
        failures=summed(one.failures for one in windows),
        outcomes=summed(one.outcomes for one in windows),
        violations=0,
        refusals=tuple(Refusals(record_type=of, reason=why, count=n) for (of, why), n in sorted(refused.items())),
        judged_by_lag=lags(one.judged_by_lag for one in windows),
        consumed_by_lag=lags(one.consumed_by_lag for one in windows),
        drift=tuple(
            DriftCount(up_to=bound, admitted=drift[bound, True], refused=drift[bound, False])
            for bound in bounds
            if drift[bound, True] + drift[bound, False]
        ),
        took=tuple(Took(up_to_s=bound, count=n) for bound, n in took.items() if n),
        took_count=sum(one.took_count for one in windows),
        took_sum_s=sum(one.took_sum_s for one in windows),
    )


def summed(lists: Iterable[tuple[Count, ...]]) -> tuple[Count, ...]:
    total: Counter[str] = Counter()
    for one in lists:
        total.update({count.name: count.count for count in one})
    return counts(total)


def lags(lists: Iterable[tuple[At, ...]]) -> tuple[At, ...]:
    total: Counter[int] = Counter()
    for one in lists:
        total.update({count.at: count.count for count in one})
    return at(total)
