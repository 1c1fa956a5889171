"""Bundle names: derived, safe as one path component, and never the same for different steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.replay.materialize.naming import bundle_id_of

RUN_ID = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,20}\Z")
UPDATE_ID = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20) | st.sampled_from(
    ["..", "../../etc/passwd", "/", "a-ub", "b", "-u", "~", "\u202e"]
)
STEP = st.tuples(RUN_ID, UPDATE_ID, st.integers(0, 3), st.integers(0, 3))


@pytest.mark.parametrize(
    ("run_id", "update_id", "name"),
    [
        ("demo", "u0", "demo-uu0-r7-s1"),
        ("demo.1", "0197-ab_c", "demo.1-u0197-ab_c-r7-s1"),
        ("team/demo:1", "u0", "team_demo_1-uu0~5410620a3b843d20-r7-s1"),
        ("demo", "../../x", "demo-u_.._x~67242888638a7c0b-r7-s1"),
    ],
)
def test_a_name_shows_what_it_is_of(run_id: str, update_id: str, name: str) -> None:
    assert bundle_id_of(run_id, update_id, 7, 1) == name


@given(STEP, STEP)
def test_different_steps_have_different_names(one: tuple[str, str, int, int], other: tuple[str, str, int, int]) -> None:
    assert (bundle_id_of(*one) == bundle_id_of(*other)) == (one == other)


@given(STEP)
def test_a_name_is_one_visible_path_component(step: tuple[str, str, int, int]) -> None:
    name = bundle_id_of(*step)
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert name.isascii()
    assert name.isprintable()
    assert len(f".{name}.provenance.json.writing-{'0' * 16}") < 255


def test_ids_that_would_read_the_same_are_told_apart() -> None:
    assert bundle_id_of("a", "b-uc", 0, 0) != bundle_id_of("a-ub", "c", 0, 0)


def test_long_ids_differ_in_their_digest() -> None:
    assert bundle_id_of("r" * 128, "u" * 256, 0, 0) != bundle_id_of("r" * 128, "u" * 255, 0, 0)
