"""Bundles held against the log: the records that their provenance names, and then every byte, materialized anew."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from rollbook.infra.settings import Settings
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.bundle.model import Redaction
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.history.source import LogSource, place_of, read_there
from rollbook.replay.materialize.assemble import Assembled
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.provenance import Position, Provenance, provenance_path
from rollbook.replay.materialize.publish import publish
from rollbook.replay.materialize.walk import Wanted, walk
from rollbook.replay.text import visible
from rollbook.schemas.codec import decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.update import Commit

_MOST = 20
_NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Given:
    """A bundle's folder, and what is said beside it of where it comes from."""

    path: Path
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class _Origin:
    """What a bundle was made of, and how: those of one run and form are made anew in one walk. `policy`: of its
    redaction, if there is one."""

    run_id: str
    format: BundleFormat
    policy: tuple[tuple[str, Redaction], ...]

    @property
    def form(self) -> Form:
        return Form(self.format, Redactor(dict(self.policy)) if self.policy else None)


def check_bundles(log: LogSource, settings: Settings, paths: Sequence[Path]) -> Iterator[Finding]:
    """What differs between bundles and the log. `paths`: as of `bundles_at`, which raises for them; one update is made
    anew at a time."""
    given = bundles_at(paths)
    found = list(_check_records(log, given))
    yield from found
    changed = {finding.place for finding in found}
    by_origin: dict[_Origin, dict[str, list[Given]]] = {}
    for one in given:
        if _place(one) not in changed:
            commit = _commit(log, one)
            of_run = by_origin.setdefault(_origin(one, commit.header.run_id), {})
            of_run.setdefault(commit.update_id, []).append(one)
    for origin, of_updates in by_origin.items():
        yield from _check_bytes(log, settings, origin, of_updates)


def bundles_at(paths: Sequence[Path]) -> tuple[Given, ...]:
    """Of bundles, or of folders with bundles in them. Raises BadInput for a path without a bundle, or a bundle without
    its provenance."""
    return tuple(one for path in paths for one in _bundles_at(path))


def _bundles_at(path: Path) -> Iterator[Given]:
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
        yield Given(one, provenance)


def _check_records(log: LogSource, given: Sequence[Given]) -> Iterator[Finding]:
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


def _positions(given: Given) -> Iterator[Position]:
    for used in given.provenance.records:
        yield used.position
        yield used.decision.position
    for payload in given.provenance.payloads:
        yield from payload.chunks


def _digests(log: LogSource, place: tuple[str, int], offsets: set[int]) -> dict[int, str]:
    return {stored.offset: stored.sha256 for stored in read_there(log, *place, offsets)}


def _check_bytes(
    log: LogSource, settings: Settings, origin: _Origin, of_updates: dict[str, list[Given]]
) -> Iterator[Finding]:
    wanted = Wanted.of_run(origin.run_id, log, settings)

    def compared(update: CommittedUpdate, _: UpdateEvidence, assembled: Assembled) -> list[Finding]:
        with TemporaryDirectory(prefix="rollbook-audit-") as folder:
            publish(Path(folder), assembled.all)
            return [finding for one in of_updates[update.update_id] for finding in _compared(one, Path(folder))]

    left = dict(of_updates)
    for made in walk(log, wanted, compared, form=origin.form, only=of_updates.keys()).each:
        why_not = next((problem.what for problem in made.problems), "it has no optimizer step")
        of_update = left.pop(made.update.update_id)
        yield from made.value if made.value is not None else _unmade(of_update, why_not)
    for update_id, of_update in left.items():
        yield from _unmade(of_update, f"update {update_id} is not committed in it")


def _unmade(given: Sequence[Given], why: str) -> Iterator[Finding]:
    for one in given:
        yield _finding(one, f"it cannot be made from the log: {why}", {}, {})


def _compared(given: Given, made: Path) -> Iterator[Finding]:
    if not (made / given.path.name).is_dir():
        yield _finding(given, "its name", {"name": given.path.name}, {"name": _NONE})
        return
    names = (given.path.name, provenance_path(given.path).name)
    said, derived = ({name: at / name for name in names} for at in (given.path.parent, made))
    yield from _compare(given, said, derived)


def _commit(log: LogSource, given: Given) -> Commit:
    """Also where the provenance is redacted."""
    for used in given.provenance.records:
        if used.record_type == Commit.__name__:
            position = used.position
            (stored,) = log.read_at(position.topic, position.partition, [position.offset])
            return decode_as(Commit, stored.value or b"")
    raise BadInput(f"{visible(provenance_path(given.path))} names no Commit: materialize the bundle again")


def _origin(given: Given, run_id: str) -> _Origin:
    """By the form that it was written in, as it says itself."""
    manifest = next(iter(sorted(given.path.rglob("manifest.json"))), None)
    index = next(iter(sorted(given.path.rglob("index.json"))), None)
    linked = _json(index).get("links") is not None
    try:
        policy = {name: Redaction(how) for name, how in dict(_json(manifest).get("redaction") or {}).items()}
    except (TypeError, ValueError):
        raise BadInput(f"{visible(manifest)} states no redaction that there is: materialize the bundle again") from None
    return _Origin(run_id, BundleFormat.V1_1 if linked else BundleFormat.V1_0, tuple(sorted(policy.items())))


def _json(path: Path | None) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _compare(given: Given, said: dict[str, Path], derived: dict[str, Path]) -> Iterator[Finding]:
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


def _finding(given: Given, what: str, said: dict[str, str], derived: dict[str, str]) -> Finding:
    return Finding(FindingKind.BUNDLE_DIFFERS, _place(given), what, said, derived)


def _place(given: Given) -> str:
    return visible(given.path, limit=4096)
