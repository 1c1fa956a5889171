"""Bundles held against the log: the records that their provenance names, and then every byte, materialized anew."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from rollbook.infra.settings import Settings
from rollbook.replay.audit.findings import Finding, Kind
from rollbook.replay.bundle.model import Redaction
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.history.source import LogSource, place_of
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.provenance import Position, Provenance, provenance_path
from rollbook.replay.text import visible
from rollbook.schemas.codec import decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.update import Commit

_MOST = 20
_NONE = "nothing"


@dataclass(frozen=True, slots=True)
class _Given:
    """A bundle's folder, and what is said beside it of where it comes from."""

    path: Path
    provenance: Provenance


def check_bundles(log: LogSource, settings: Settings, paths: Sequence[Path]) -> Iterator[Finding]:
    """What differs between bundles and the log. `paths`: of bundles, or of folders with bundles in them. Raises
    BadInput for a path without a bundle, or a bundle without its provenance."""
    given = [one for path in paths for one in _bundles_at(path)]
    found = list(_check_records(log, given))
    yield from found
    sound = [one for one in given if visible(one.path, limit=4096) not in {finding.place for finding in found}]
    by_origin: dict[tuple[object, ...], list[_Given]] = {}
    for one in sound:
        form = _form(one)
        policy = tuple(sorted(form.redactor.policy.items())) if form.redactor is not None else ()
        by_origin.setdefault((_commit(log, one).header.run_id, form.format, policy), []).append(one)
    for together in by_origin.values():
        yield from _check_bytes(log, settings, together)


def _bundles_at(path: Path) -> Iterator[_Given]:
    folders = [path] if provenance_path(path).exists() else sorted(one for one in path.glob("*") if one.is_dir())
    given = [one for one in folders if provenance_path(one).exists()]
    if not given:
        raise BadInput(
            f"{visible(path)} is no bundle with a provenance beside it, and no folder of such: give what `rollbook "
            "materialize` has written"
        )
    for one in given:
        place = provenance_path(one)
        try:
            provenance = Provenance.model_validate_json(place.read_bytes())
        except (ValidationError, OSError) as problem:
            first = problem.errors()[0]["msg"] if isinstance(problem, ValidationError) else problem.strerror
            raise BadInput(f"{visible(place)} is no provenance ({first}): materialize the bundle again") from None
        yield _Given(one, provenance)


def _check_records(log: LogSource, given: Sequence[_Given]) -> Iterator[Finding]:
    """Each record that a bundle was made from is still the one that it was; the first of each bundle that is not. All
    are looked up together, since each look-up in Kafka costs a jump."""
    offsets: dict[tuple[str, int], set[int]] = {}
    for position in (position for one in given for position in _positions(one)):
        offsets.setdefault((position.topic, position.partition), set()).add(position.offset)
    there = {place: _digests(log, place, wanted) for place, wanted in offsets.items()}
    for one in given:
        for position in _positions(one):
            digest = there[position.topic, position.partition].get(position.offset)
            if digest != position.sha256:
                place = place_of(position.topic, position.partition, position.offset)
                sides = {"sha256": position.sha256}, {"sha256": digest or _NONE}
                yield _finding(one, f"{place}, which it was made from", *sides)
                break


def _positions(given: _Given) -> Iterator[Position]:
    for used in given.provenance.records:
        yield used.position
        yield used.decision.position
    for payload in given.provenance.payloads:
        yield from payload.chunks


def _digests(log: LogSource, place: tuple[str, int], offsets: set[int]) -> dict[int, str]:
    """Of what is there; where one is gone the others are looked for one by one."""
    try:
        return {stored.offset: stored.sha256 for stored in log.read_at(*place, offsets)}
    except BadInput:
        found = {}
        for offset in offsets:
            with suppress(BadInput):
                found.update({stored.offset: stored.sha256 for stored in log.read_at(*place, [offset])})
        return found


def _check_bytes(log: LogSource, settings: Settings, given: Sequence[_Given]) -> Iterator[Finding]:
    """Of one run and form: the run is materialized once for all of them."""
    run_id, form = _commit(log, given[0]).header.run_id, _form(given[0])
    updates = {_commit(log, one).update_id for one in given}
    wanted = Wanted.of_run(run_id, log, settings, updates.pop() if len(updates) == 1 else None)
    with TemporaryDirectory(prefix="rollbook-audit-") as folder:
        out = Path(folder)
        report = materialize(log, wanted, out, form=form)
        why_not = {problem.update_id: problem.what for problem in report.problems}
        for one in given:
            if (what := why_not.get(_commit(log, one).update_id)) is not None:
                yield _finding(one, f"it cannot be made from the log: {what}", {}, {})
            elif not (out / one.path.name).is_dir():
                yield _finding(one, "its name", {"name": one.path.name}, {"name": _NONE})
            else:
                names = (one.path.name, provenance_path(one.path).name)
                said, derived = ({name: at / name for name in names} for at in (one.path.parent, out))
                yield from _compare(one, said, derived)


def _commit(log: LogSource, given: _Given) -> Commit:
    """Also where the provenance is redacted."""
    for used in given.provenance.records:
        if used.record_type == Commit.__name__:
            position = used.position
            (stored,) = log.read_at(position.topic, position.partition, [position.offset])
            return decode_as(Commit, stored.value or b"")
    raise BadInput(f"{visible(provenance_path(given.path))} names no Commit: materialize the bundle again")


def _form(given: _Given) -> Form:
    """The form that it was written in, as it says itself."""
    manifest = next(iter(sorted(given.path.rglob("manifest.json"))), None)
    index = next(iter(sorted(given.path.rglob("index.json"))), None)
    policy = _json(manifest).get("redaction") or {}
    linked = _json(index).get("links") is not None
    redactor = Redactor({name: Redaction(how) for name, how in policy.items()}) if policy else None
    return Form(BundleFormat.V1_1 if linked else BundleFormat.V1_0, redactor)


def _json(path: Path | None) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _compare(given: _Given, said: dict[str, Path], derived: dict[str, Path]) -> Iterator[Finding]:
    count = 0
    for name, place in said.items():
        there, made = _files(place), _files(derived[name])
        for file in sorted({*there, *made}):
            if there.get(file) == made.get(file):
                continue
            count += 1
            if count > _MOST:
                return
            yield _finding(given, f"{name}/{file}".rstrip("/."), *_sides(file, there.get(file), made.get(file)))


def _files(place: Path) -> dict[str, bytes]:
    if place.is_file():
        return {".": place.read_bytes()}
    return {str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()}


def _sides(name: str, said: bytes | None, derived: bytes | None) -> tuple[dict[str, str], dict[str, str]]:
    if said is None or derived is None:
        return {"file": _NONE if said is None else "there"}, {"file": _NONE if derived is None else "there"}
    try:
        both = (json.loads(said), json.loads(derived))
    except ValueError:
        at = next(
            (n for n, (a, b) in enumerate(zip(said, derived, strict=False)) if a != b), min(len(said), len(derived))
        )
        return {"bytes": f"{len(said):,}"}, {"bytes": f"{len(derived):,}, first different at {at:,}"}
    path, there, made = _first_difference("", *both)
    return {path: json.dumps(there)}, {path: json.dumps(made)}


def _first_difference(path: str, said: Any, derived: Any) -> tuple[str, Any, Any]:
    if isinstance(said, dict) and isinstance(derived, dict):
        for key in dict.fromkeys((*said, *derived)):
            if said.get(key) != derived.get(key):
                return _first_difference(f"{path}.{key}".lstrip("."), said.get(key), derived.get(key))
    if isinstance(said, list) and isinstance(derived, list):
        for at in range(max(len(said), len(derived))):
            sides = [side[at] if at < len(side) else None for side in (said, derived)]
            if sides[0] != sides[1]:
                return _first_difference(f"{path}.{at}", *sides)
    return path or "form", said, derived


def _finding(given: _Given, what: str, said: dict[str, str], derived: dict[str, str]) -> Finding:
    return Finding(Kind.BUNDLE_DIFFERS, visible(given.path, limit=4096), what, said, derived)
