"""Versions that were shipped before: the decoder finds each by its fingerprint and reads it into today's model."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from rollbook.schemas import codec
from rollbook.schemas.avro_types import FOLDER, schema_of, text_of
from rollbook.schemas.codec import UndecodableRecord, decode, encode, unwrap
from rollbook.schemas.records.common import Header, Source, SourceKind
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.reward import RewardFailed, RewardFailure
from rollbook.schemas.registry import RECORDS


def _header(event_id: str = "event-1") -> Header:
    source = Source(kind=SourceKind.REWARD_SERVICE, id="s")
    return Header(run_id="r", event_id=event_id, occurred_at=1, source=source)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of schemas in which earlier versions can be laid."""
    folder = tmp_path / "avro"
    (folder / "shipped").mkdir(parents=True)
    for model in RECORDS:
        (folder / f"{model.__name__}.avsc").write_text(text_of(model), encoding="utf-8")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    _forget()
    yield folder / "shipped"
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    codec._writers.cache_clear()
    codec._writer_of.cache_clear()


def _earlier(folder: Path, change: Any) -> Any:
    """An earlier RewardFailed, registered; returns its parsed schema and fingerprint."""
    schema = json.loads(text_of(RewardFailed))
    change(schema)
    (folder / "RewardFailed-1.avsc").write_text(json.dumps(schema), encoding="utf-8")
    _forget()
    found = [item for item in codec._writers().items() if item[1].model is RewardFailed and not item[1].is_current]
    assert len(found) == 1
    return found[0]


def _write_earlier(prefix: bytes, schema: Any, plain: Any) -> bytes:
    out = io.BytesIO()
    out.write(codec.MARKER + prefix)
    fastavro.schemaless_writer(out, schema, plain, disable_tuple_notation=True)
    return out.getvalue()


FAILED = RewardFailed(
    header=_header(), trajectory_id="t", reason=RewardFailure.TIMEOUT, retriable=True, text="a free text"
)


def test_a_record_of_an_earlier_version_is_read_with_the_defaults_of_today(shipped: Path) -> None:
    prefix, writer = _earlier(shipped, lambda schema: schema["fields"].pop())
    assert json.loads(text_of(RewardFailed))["fields"][-1]["name"] == "text"
    data = _write_earlier(prefix, writer.schema, FAILED.model_dump(exclude={"text"}))
    assert decode(data) == FAILED.model_copy(update={"text": ""})
    assert decode(encode(FAILED)) == FAILED, "new records are written in today's version"
    assert encode(FAILED)[2:10] != prefix


def test_a_field_that_was_given_up_is_passed_over(shipped: Path) -> None:
    extra = {"name": "note", "type": "string"}
    prefix, writer = _earlier(shipped, lambda schema: schema["fields"].insert(2, extra))
    data = _write_earlier(prefix, writer.schema, FAILED.model_dump() | {"note": "given up"})
    assert decode(data) == FAILED


def test_an_earlier_record_is_refused_whole_where_a_part_is_missing(shipped: Path) -> None:
    prefix, writer = _earlier(shipped, lambda schema: schema["fields"].pop())
    data = _write_earlier(prefix, writer.schema, FAILED.model_dump(exclude={"text"}))
    for length in range(len(data)):
        with pytest.raises(UndecodableRecord):
            decode(data[:length])
    with pytest.raises(UndecodableRecord, match="left over"):
        decode(data + b"\0")


def test_an_earlier_header_is_left_out_of_the_content_too(shipped: Path) -> None:
    def without_clock(schema: Any) -> None:
        schema["fields"].pop()
        schema["fields"][0]["type"]["fields"] += [{"name": "host", "type": "string"}]

    prefix, writer = _earlier(shipped, without_clock)
    bodies = []
    for event_id in ("event-1", "event-22"):
        plain = FAILED.model_dump(exclude={"text"})
        plain["header"] |= {"event_id": event_id, "host": f"host of {event_id}"}
        bodies.append(_write_earlier(prefix, writer.schema, plain))
    assert unwrap(bodies[0]).content == unwrap(bodies[1]).content
    assert decode(bodies[1]) == FAILED.model_copy(update={"header": _header("event-22"), "text": ""})


def test_an_earlier_version_that_differs_in_words_only_is_todays(shipped: Path) -> None:
    schema = json.loads(text_of(RewardFailed))
    schema["doc"] = "Other words."
    (shipped / "RewardFailed-1.avsc").write_text(json.dumps(schema), encoding="utf-8")
    _forget()
    assert len(codec._writers()) == len(RECORDS)
    assert decode(encode(FAILED)) == FAILED


def test_a_recording_of_before_conventions_could_be_named_has_none() -> None:
    schema = json.loads((FOLDER / "shipped" / "StepRecording-1.avsc").read_text(encoding="utf-8"))
    prefix, writer = next(
        item for item in codec._writers().items() if item[1].model is StepRecording and not item[1].is_current
    )
    plain = {
        "run_id": "r",
        "update_id": "u",
        "learner": {"learner_id": "l", "epoch": 1},
        "role": "actor",
        **dict.fromkeys(("rollout_id", "step_id", "epoch", "rank"), 0),
        "world": dict.fromkeys(("dp", "tp", "pp", "cp"), 1),
        "consumer_batch_id": "b",
        "policy": {"version": 0, "artifact_hash": "h"},
        "config": {
            "advantage_estimator": "grpo",
            "n_samples_per_prompt": 1,
            "grpo_std_normalization": False,
            "kl_loss_type": "k1",
            **dict.fromkeys(("kl_coef", "eps_clip", "eps_clip_high", "entropy_coef"), 0.0),
        },
        "cohorts": [],
        "rows": [
            {
                **dict.fromkeys(("trajectory_id", "group_id", "micro_batch_id"), "t"),
                "segment": 0,
                "prompt_length": 1,
                "loss_mask": b"\1",
                "reward": 0.5,
                "padding": False,
            }
        ],
        "arrays": [{"name": "importance_weights", "data": b""}],
        "old_source": "rollout",
        "normalizer": 1.0,
        "results": [],
        "row_terms": [],
        "kernel": dict.fromkeys(("implementation", "package", "version", "function"), "k"),
        "framework_version": "",
    }
    assert set(plain) == {field["name"] for field in schema["fields"]}
    found = decode(_write_earlier(prefix, writer.schema, plain))
    assert isinstance(found, StepRecording)
    assert found.conventions is None
    assert (found.rows[0].reward, found.arrays[0].name) == (0.5, "importance_weights")


def test_what_was_shipped_can_be_read_by_today() -> None:
    """Each schema that was ever shipped, today's included, resolves to today's."""
    names = {model.__name__: model for model in RECORDS}
    published = [*FOLDER.glob("*.avsc"), *FOLDER.glob("shipped/*.avsc")]
    assert len(published) >= len(RECORDS)
    for file in published:
        writer = json.loads(file.read_text(encoding="utf-8"))
        reader = schema_of(names[writer["name"]])
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # the package leaves some untyped
        found = checker.get_compatibility(avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer)))
        assert found.compatibility is SchemaCompatibilityType.compatible, file.name
