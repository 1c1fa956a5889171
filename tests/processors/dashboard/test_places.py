"""Times of offsets and mentions of trajectories: what is found, and what is kept of very much."""

from rollbook.processors.dashboard.fold.places import APART_MS, Mentions, Times


def test_a_time_is_that_of_the_mark_before() -> None:
    times = Times()
    assert times.of(5) is None
    for place in range(10, 1_000):
        times.mark(place, place * 10)
    assert times.of(9) is None
    for place in (10, 11, 555, 999):
        found = times.of(place)
        assert found is not None
        assert 0 <= place * 10 - found < APART_MS
    assert times.of(1_000) is None


def test_a_clock_that_went_back_is_followed() -> None:
    times = Times()
    times.mark(1, 10_000)
    times.mark(2, 4_000)
    assert [times.of(1), times.of(2)] == [10_000, 4_000]


def test_what_is_older_is_kept_coarser_and_the_latest_stays_fine() -> None:
    times = Times(most_fine=1_000, most_coarse=500)
    for place in range(50_000):
        times.mark(place, place * APART_MS)
        assert len(times) <= 2_500
        assert times.of(place) == place * APART_MS
    off = [place - (times.of(place) or 0) // APART_MS for place in range(50_000)]
    assert min(off) == 0, "never a later time"
    assert max(off[-1_000:]) == 0
    assert max(off) <= 256


def test_what_was_not_read_yet_has_no_time() -> None:
    times = Times()
    times.mark(5, 1_000)
    times.mark(6, 1_001)
    assert (times.of(6), times.of(7)) == (1_000, None)


def test_mentions_are_found_until_newer_ones_take_their_place() -> None:
    mentions = Mentions(most=100)
    assert mentions.of(b"t") == ()
    for offset in range(100):
        mentions.add(b"%d" % (offset % 10), offset)
    assert mentions.is_complete
    assert mentions.of(b"3") == tuple(range(3, 100, 10))
    for offset in range(100, 150):
        mentions.add(b"other", offset)
    assert not mentions.is_complete
    assert mentions.of(b"3") == (53, 63, 73, 83, 93)
    assert mentions.of(b"other") == tuple(range(100, 150))
