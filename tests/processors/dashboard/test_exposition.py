"""What /metrics says of the view: nothing of runs before the log was read, then each by what is known of it."""

from rollbook.infra.settings import Settings
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.exposition import Exposition
from rollbook.processors.dashboard.shared import Shared, Standing
from rollbook.processors.freshness import snapshot
from rollbook.processors.metric import MOST_RUNS
from rollbook.schemas.codec import encode
from rollbook.tests.processors.dashboard.stored import BEGAN_MS, Message, decisions
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log


def two_leases() -> History:
    """One of 1,000 s that began first, and one of 10 s."""
    history = History().opened(lease_ms=1_000_000)
    history.learner()
    history.ready("t0", "t1")
    history.reserve("u0", "t0")
    history.configured(2, lease_ms=10_000)
    history.reserve("u1", "t1")
    return history


def taken(*histories: History) -> Shared:
    """A dashboard that has read the decisions and the last snapshot of each, which share a log."""
    shared = Shared(Settings())
    kept = [Message(at, BEGAN_MS, one.run_id, encode(snapshot(one.run))) for at, one in enumerate(histories)]
    shared.take(decisions(histories[0].log), kept)
    return shared


def test_a_log_that_is_half_read_tells_nothing_of_runs() -> None:
    shared = taken(two_leases())
    exposition = Exposition(shared)
    assert 'run="r"' not in exposition().decode()
    shared.stand(Standing(Reading.LIVE))
    assert 'run="r"' in exposition().decode()
    shared.stand(Standing(Reading.CUT_OFF))
    assert 'run="r"' in exposition().decode()
    shared.begin_anew()
    assert 'run="r"' not in exposition().decode()


def test_of_two_leases_the_one_that_ends_first_is_told_whatever_their_length() -> None:
    shared = taken(two_leases())
    shared.stand(Standing(Reading.LIVE))
    told = Exposition(shared)().decode()
    assert 'rollbook_run_lease_seconds{run="r"} 10.0' in told
    assert 'rollbook_run_lease_left_seconds{run="r"} 0.0' in told


def test_open_runs_that_have_no_place_are_counted() -> None:
    log = Log()
    shared = taken(*(History(f"r{at}", log=log).opened() for at in range(MOST_RUNS + 7)))
    shared.stand(Standing(Reading.LIVE))
    told = Exposition(shared)().decode()
    assert f"rollbook_dashboard_runs {MOST_RUNS + 7}.0" in told
    assert "rollbook_dashboard_runs_not_shown 7.0" in told
