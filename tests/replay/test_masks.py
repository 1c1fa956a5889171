"""Masks that are lifted out of a text are those that a JSON parser finds there; what is not plain is left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.replay.bundle.masks import lift_masks

SAMPLES = st.lists(
    st.fixed_dictionaries(
        {"sample_id": st.text(st.characters(exclude_characters='\\"', exclude_categories=["C"]), max_size=8)},
        optional={"loss_mask": st.lists(st.sampled_from([0, 1]), max_size=40), "reward": st.floats(-1, 1)},
    ),
    max_size=6,
)


def parsed(text: str) -> Any:
    """As a reader of the whole text has it, each mask as bytes."""

    def pack(found: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: bytes(value) if key == "loss_mask" else value for key, value in found}

    return json.loads(text, object_pairs_hook=pack)


@given(samples=SAMPLES, indent=st.sampled_from([None, 0, 2]))
def test_what_is_put_back_is_what_was_there(samples: list[dict[str, Any]], indent: int | None) -> None:
    samples = [{"pad": "x" * 64, **sample} for sample in samples]
    text = json.dumps({"samples": samples}, indent=indent, ensure_ascii=False)
    lifted = lift_masks(text.encode())
    assert lifted is not None
    assert len(lifted.masks) == sum("loss_mask" in sample for sample in samples)
    assert json.loads(lifted.text, object_hook=lifted.put_back) == parsed(text)


def test_next_to_nothing_is_left_to_parse() -> None:
    text = json.dumps({"samples": [{"loss_mask": [1, 0] * 50_000}]}, indent=2).encode()
    lifted = lift_masks(text)
    assert lifted is not None
    assert len(lifted.text) < 100 < 10**6 < len(text)


NOT_PLAIN = [
    '{"loss_mask": [1, 0,]}',
    '{"loss_mask": [,1]}',
    '{"loss_mask": [1 0]}',
    '{"loss_mask": [1, 2]}',
    '{"loss_mask": [10]}',
    '{"loss_mask": [1, true]}',
    '{"loss_mask": [1.0]}',
    '{"loss_mask": [[1], 0]}',
    '{"loss_mask": [1, 0}',
    '{"loss_mask" [1]}',
    '{"loss_mask": "[1]"}',
    '{"loss_mask": 1, "other": [1]}',
    '{"label": "loss_mask", "other": [1]}',
    '{"label": "\\"loss_mask\\": [1]"}',
    '{"loss\\u005fmask": [1], "loss_mask": [0]}',
    '{"loss_mask": [1]}' * 100,
]


@pytest.mark.parametrize("text", NOT_PLAIN, ids=lambda text: text[:40])
def test_what_is_not_plain_is_left_to_the_parser(text: str) -> None:
    assert lift_masks(text.encode()) is None
