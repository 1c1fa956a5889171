"""Bundles as an audit is given them: each with the provenance beside it, and nothing that only looks like one."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rollbook.replay.bundle.layout import is_leftover
from rollbook.replay.bundle.model import Redaction
from rollbook.replay.history.source import LogSource, read_there
from rollbook.replay.materialize.form import BundleFormat
from rollbook.replay.materialize.provenance import Position, Provenance, provenance_path
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.update import Admit, Commit, RecordingSealed, Reserve, UpdateStarted
from rollbook.schemas.text import visible
from rollbook.schemas.wording import worded

_PROVENANCE = provenance_path(Path("bundle")).name.removeprefix("bundle")
_OF_UPDATES = Reserve, Admit, UpdateStarted, Commit, RecordingSealed
_FILES = "manifest.json", "index.json", "COMPLETE"
"""A folder that has most of them is a bundle, or was to be one; a page may have one of these names, too."""


class UnknownForm(Exception):
    """A bundle does not say in which form it was written."""


@dataclass(frozen=True, slots=True)
class Given:
    """A bundle's folder, and what is said beside it of where it comes from."""

    path: Path
    provenance: Provenance

    @property
    def place(self) -> str:
        return visible(self.path, limit=4096)

    @property
    def commit(self) -> Position:
        """Where the Commit of its update lies; also said where the provenance is redacted. Raises UnknownForm."""
        for one in self.provenance.records:
            if one.record_type == Commit.__name__:
                return one.position
        raise UnknownForm("its provenance names no Commit")

    def updates(self, log: LogSource) -> Iterator[tuple[str, str]]:
        """Run and id of its update: as it says, and as those of its records do that a log has."""
        yield self.provenance.run_id, self.provenance.update_id
        places: dict[tuple[str, int], list[int]] = {}
        for used in self.provenance.records:
            places.setdefault((used.position.topic, used.position.partition), []).append(used.position.offset)
        for place, offsets in places.items():
            for stored in read_there(log, *place, offsets):
                with suppress(UndecodableRecord, ContractViolation):
                    record = decode(stored.value or b"")
                    if isinstance(record, _OF_UPDATES):
                        yield record.header.run_id, record.update_id

    def records(self) -> Iterator[Position]:
        """The records that it was made from, each with its decision."""
        for used in self.provenance.records:
            yield used.position
            yield used.decision.position

    def chunks(self) -> Iterator[Position]:
        """Those of the payloads that it was made from."""
        for payload in self.provenance.payloads:
            yield from payload.chunks

    @property
    def format(self) -> BundleFormat:
        """In which it was written, as it says itself."""
        return BundleFormat.V1_0 if _json(self._first("index.json")).get("links") is None else BundleFormat.V1_1

    @property
    def policy(self) -> tuple[tuple[str, Redaction], ...]:
        """Of its redaction, if there is one. Raises UnknownForm."""
        said = _json(self._first("manifest.json")).get("redaction")
        try:
            return tuple(sorted((name, Redaction(how)) for name, how in dict(said or {}).items()))
        except (TypeError, ValueError):
            raise UnknownForm("its manifest states no redaction that there is") from None

    def _first(self, name: str) -> Path | None:
        return next(iter(sorted(self.path.rglob(name))), None)


def bundles_at(paths: Sequence[Path]) -> tuple[Given, ...]:
    """Of bundles, or of folders with bundles in them, each of which has its provenance beside it: what has none could
    not be held against anything, and would pass unseen. Raises BadInput for all else."""
    found = {os.path.realpath(one): one for path in paths for one in _folders(_named(path))}
    return tuple(map(_given, found.values()))


def _named(path: Path) -> Path:
    """A folder by its own name, beside which its provenance lies: `.` has none."""
    return Path(os.path.abspath(path)) if path.name in ("", "..") else path  # noqa: PTH100  # links stay as they are


def _folders(path: Path) -> list[Path]:
    if path.name and provenance_path(path).exists():
        return [path]
    folders = [one for one in _inside(path) if one.is_dir() and not is_leftover(one.name)]
    given = [one for one in folders if provenance_path(one).exists()]
    if not given:
        raise BadInput(
            f"{visible(path)} is no bundle with a provenance beside it, and no folder of such: give what `rollbook "
            "materialize` has written"
        )
    for one in folders:
        if one not in given and any(map(_is_bundle, (one, *one.rglob("*")))):
            raise BadInput(
                f"{visible(one)} is or holds a bundle without a provenance beside it, so that nothing vouches for it: "
                "materialize it again, or give the others alone"
            )
    for one in _inside(path):
        bundle = one.with_name(one.name.removesuffix(_PROVENANCE))
        if one.name.endswith(_PROVENANCE) and bundle not in given:
            raise BadInput(f"{visible(one)} is of a bundle that is not there: materialize it again, or remove the file")
    return given


def _inside(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _is_bundle(path: Path) -> bool:
    return sum((path / name).exists() for name in _FILES) > 1


def _given(path: Path) -> Given:
    place = provenance_path(path)
    if not path.is_dir():
        raise BadInput(f"{visible(place)} is of a bundle that is not there: materialize it again, or remove the file")
    try:
        return Given(path, Provenance.model_validate_json(place.read_bytes()))
    except (ValidationError, OSError) as problem:
        first = worded(problem.errors()[0]) if isinstance(problem, ValidationError) else problem.strerror
        raise BadInput(f"{visible(place)} is no provenance ({first}): materialize the bundle again") from None


def _json(path: Path | None) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
