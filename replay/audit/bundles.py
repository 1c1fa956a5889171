"""Bundles held against the log: the records that their provenance names, and then every byte, materialized anew."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.given import Given, UnknownForm, bundles_at
from rollbook.replay.audit.lookup import Written, is_elsewhere
from rollbook.replay.bundle.model import Redaction
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.source import LogSource, StoredRecord, place_of, read_there
from rollbook.replay.materialize.assemble import Assembled
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.provenance import Position, provenance_path
from rollbook.replay.materialize.publish import publish
from rollbook.replay.materialize.walk import Wanted, walk
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import Commit, RecordingSealed
from rollbook.schemas.text import plural, visible

_MOST = 20
_NONE = "nothing"


@dataclass(frozen=True, slots=True)
class BundlesChecked:
    """What bundles were found to be. `made`: how many were held against the log; `unchecked`: of the others why not."""

    made: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]

    def demand_any(self) -> None:
        """To find nothing wrong in nothing is no answer. Raises BadInput where none of them was held against it."""
        if not (self.made or self.findings):
            raise BadInput(
                f"none of the bundles can be held against these records: {'; '.join(self.unchecked)}: give the "
                "history that they were made from, with its payloads"
            )


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


def check_bundles(log: LogSource, settings: Settings, paths: Sequence[Path]) -> BundlesChecked:
    """What differs between bundles and the log. `paths`: as of `bundles_at`, which raises for them; one update is made
    anew at a time."""
    check = _Check(log, settings, bundles_at(paths))
    findings = tuple(check.findings())
    count = len(check.without)
    what = f"{plural(count, 'bundle')}: not in the log (any more) is what they were made from, such as "
    unchecked = (what + next(iter(check.without.values())),) if count else ()
    return BundlesChecked(len(check.given) - count, findings, unchecked)


class _Check:
    """`without`: what the log does not have of the bundles that cannot be held against it, by their places."""

    def __init__(self, log: LogSource, settings: Settings, given: Sequence[Given]) -> None:
        self._log = log
        self._settings = settings
        self.given = given
        self._lacking: dict[str, str] = {}
        """Of bundles, by their places, what the log does not have, and cannot be expected to."""
        self.without: dict[str, str] = {}
        self._commits: dict[str, dict[str, str]] = {}
        """By run and update where they lie."""

    def findings(self) -> Iterator[Finding]:
        changed: set[str] = set()
        for finding in self._check_records():
            changed.add(finding.place)
            yield finding
        by_origin: dict[_Origin, dict[str, list[Given]]] = {}
        for one in self.given:
            if one.place in changed:
                continue
            try:
                commit = self._commit(one)
                if commit is not None:
                    of_run = by_origin.setdefault(_Origin(commit.header.run_id, one.format, one.policy), {})
                    of_run.setdefault(commit.update_id, []).append(one)
                elif (there := self._committed(one)) is not None:
                    sides = [{"commit": visible(place)} for place in (_place(one.commit), there)]
                    yield _finding(one, "the Commit of its update, which it was made from", *sides)
                else:
                    self.without[one.place] = self._lacking[one.place]
            except UnknownForm as unknown:
                yield _finding(one, f"it cannot be made from the log: {unknown}", {}, {})
        for origin, of_updates in by_origin.items():
            yield from self._check_bytes(origin, of_updates)

    def _check_records(self) -> Iterator[Finding]:
        """Each record that a bundle was made from is still the one that it was; the first of each bundle that is not.
        All are looked up together, since each look-up in Kafka costs a jump."""
        offsets: dict[tuple[str, int], set[int]] = {}
        for position in chain.from_iterable(chain(one.records(), one.chunks()) for one in self.given):
            offsets.setdefault((position.topic, position.partition), set()).add(position.offset)
        there = {place: self._digests(place, wanted) for place, wanted in offsets.items()}
        for one in self.given:
            lacking = _Lacking(self._log, self._settings, one)
            for position, is_chunk in lacking.positions():
                digest = there[position.topic, position.partition].get(position.offset)
                if digest == position.sha256:
                    continue
                if digest is None and lacking.may_lack(position, is_chunk):
                    self._lacking.setdefault(one.place, visible(_place(position)))
                    continue
                sides = {"sha256": position.sha256}, {"sha256": digest or _NONE}
                yield _finding(one, f"{visible(_place(position))}, which it was made from", *sides)
                break

    def _digests(self, place: tuple[str, int], offsets: Iterable[int]) -> dict[int, str]:
        return {stored.offset: stored.sha256 for stored in read_there(self._log, *place, offsets)}

    def _commit(self, given: Given) -> Commit | None:
        """None where the log has no record there. Raises UnknownForm."""
        position = given.commit
        stored = next(read_there(self._log, position.topic, position.partition, [position.offset]), None)
        if stored is None:
            return None
        try:
            return decode_as(Commit, stored.value or b"")
        except (UndecodableRecord, ContractViolation):
            raise UnknownForm(f"the Commit that its provenance names, at {stored.place}, is none") from None

    def _committed(self, given: Given) -> str | None:
        """Where an update of the bundle's was committed all the same. Its own word that the Commit is not in the log is
        not enough: whoever edits a bundle can write it."""
        for run_id, update_id in dict.fromkeys(given.updates(self._log)):
            if run_id not in self._commits:
                self._commits[run_id] = dict(self._commits_of(run_id))
            if update_id in self._commits[run_id]:
                return self._commits[run_id][update_id]
        return None

    def _commits_of(self, run_id: str) -> Iterator[tuple[str, str]]:
        """Each update of a run whose Commit the log has, and where that lies."""
        wanted = Wanted.of_run(run_id, self._log, self._settings)
        with suppress(BadInput):  # the run's partition is not in these files
            decisions = DecisionLog(self._log, wanted.decisions_topic, wanted.lifecycle.partition)
            there = self._log.bounds(*wanted.place)
            for one in decisions.read():
                decision = one.decision
                is_commit = decision.record_type == Commit.__name__ and decision.outcome is Outcome.ACCEPTED
                if is_commit and decision.run_id == run_id and there.first <= decision.source.offset < there.end:
                    yield decision.update_id or "", place_of(*wanted.place, decision.source.offset)

    def _check_bytes(self, origin: _Origin, of_updates: dict[str, list[Given]]) -> Iterator[Finding]:
        wanted = Wanted.of_run(origin.run_id, self._log, self._settings)

        def compared(update: CommittedUpdate, _: UpdateEvidence, assembled: Assembled) -> list[Finding]:
            with TemporaryDirectory(prefix="rollbook-audit-") as folder:
                publish(Path(folder), assembled.all)
                return [finding for one in of_updates[update.update_id] for finding in _compared(one, Path(folder))]

        left = dict(of_updates)
        for made in walk(self._log, wanted, compared, form=origin.form, only=of_updates.keys()).each:
            why_not = next((problem.what for problem in made.problems), "it has no optimizer step")
            of_update = left.pop(made.update.update_id)
            yield from made.value if made.value is not None else self._unmade(of_update, why_not)
        for update_id, of_update in left.items():
            yield from self._unmade(of_update, f"update {visible(update_id)} is not committed in it")

    def _unmade(self, given: Sequence[Given], why: str) -> Iterator[Finding]:
        """What the log lacks is in the way of a bundle that needs it, and says nothing against it."""
        for one in given:
            if one.place in self._lacking:
                self.without[one.place] = self._lacking[one.place]
            else:
                yield _finding(one, f"it cannot be made from the log: {why}", {}, {})


class _Lacking:
    """Whether the log can be without a record that a bundle was made from, and the bundle be right all the same. What a
    provenance says alone is not believed: a payload is also named by the bundle's records."""

    def __init__(self, log: LogSource, settings: Settings, given: Given) -> None:
        self._log = log
        self._written = Written((log,), settings.topic(Topic.PAYLOADS))
        self._given = given
        self._lacks_records = False

    def positions(self) -> Iterator[tuple[Position, bool]]:
        """Each with whether it is of a payload: the records that name them first."""
        yield from ((one, False) for one in self._given.records())
        yield from ((one, True) for one in self._given.chunks())

    def may_lack(self, position: Position, is_chunk: bool) -> bool:
        if not is_chunk:
            is_outside = is_elsewhere(self._log, position.topic, position.partition, position.offset)
            self._lacks_records = self._lacks_records or is_outside
            return is_outside
        if self._written.why_not(position.topic, position.partition, (position.offset,)) is not None:
            return False
        return self._lacks_records or (position.topic, position.partition, position.offset) in self._named

    @cached_property
    def _named(self) -> set[tuple[str, int, int]]:
        places: dict[tuple[str, int], set[int]] = {}
        for used in self._given.provenance.records:
            places.setdefault((used.position.topic, used.position.partition), set()).add(used.position.offset)
        stored = chain.from_iterable(read_there(self._log, *place, offsets) for place, offsets in places.items())
        return {place for one in stored for place in _chunks(one)}


def _chunks(stored: StoredRecord) -> Iterator[tuple[str, int, int]]:
    """Those of the payloads that a record names and bundles are made from."""
    try:
        record = decode(stored.value or b"")
    except (UndecodableRecord, ContractViolation):
        return
    segments = record.segments if isinstance(record, Generated) else ()
    recordings = record.recordings if isinstance(record, RecordingSealed) else ()
    for ref in (part.payload for parts in (segments, recordings) for part in parts):
        if ref is not None:
            yield from ((ref.topic, ref.partition, offset) for offset in ref.offsets)


def _compared(given: Given, made: Path) -> Iterator[Finding]:
    if not (made / given.path.name).is_dir():
        yield _finding(given, "its name", {"name": given.path.name}, {"name": _NONE})
        return
    names = (given.path.name, provenance_path(given.path).name)
    said, derived = ({name: at / name for name in names} for at in (given.path.parent, made))
    yield from _compare(given, said, derived)


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
            yield _finding(given, f"{name}/{file}".rstrip("/."), *_sides(there.get(file), made.get(file)))


def _files(place: Path) -> dict[str, bytes]:
    if place.is_file():
        return {".": place.read_bytes()}
    return {str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()}


def _sides(said: bytes | None, derived: bytes | None) -> tuple[dict[str, str], dict[str, str]]:
    if said is None or derived is None:
        return {"file": _NONE if said is None else "there"}, {"file": _NONE if derived is None else "there"}
    try:
        path, there, made = _first_difference("", json.loads(said), json.loads(derived))
        return {path: json.dumps(there)}, {path: json.dumps(made)}
    except (ValueError, RecursionError):
        at = next(
            (n for n, (a, b) in enumerate(zip(said, derived, strict=False)) if a != b), min(len(said), len(derived))
        )
        return {"bytes": f"{len(said):,}"}, {"bytes": f"{len(derived):,}, first different at {at:,}"}


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
    return Finding(FindingKind.BUNDLE_DIFFERS, given.place, what, said, derived)


def _place(position: Position) -> str:
    return place_of(position.topic, position.partition, position.offset)
