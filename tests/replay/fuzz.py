"""Bundles with anything in any field and any byte, sealed again so that only the content is wrong.

    python -m rollbook.tests.replay.fuzz [MINUTES]

is the long programme of which test_fuzz.py runs a share: each field with each of some values and each byte with all of
its others (minutes), then anything anywhere for as long as was said. Whatever is in a bundle: inspect, validate and
replay answer, or refuse in one line with file and remedy; nothing outside the bundle is opened, nothing is imported,
executed or unpickled; what is accepted can be written and read again, and torch reads the same from it.
"""

import hashlib
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rollbook.replay.bundle.reading.cohort import inspect, read_cohort, validate
from rollbook.replay.bundle.tensorfile import parse_tensor
from rollbook.replay.bundle.terms import TERMS, render_terms
from rollbook.replay.bundle.torchzip import NotATensorFile, read_entries, write_entries
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.writer import write_bundle, write_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.schemas.text import visible
from rollbook.tests.fuzz.target import noted, told
from rollbook.tests.replay.reseal import FIXTURES, edit_bundle

ONE = FIXTURES / "full-k1"
TWO = FIXTURES / "two-rank"
Path_ = tuple[Any, ...]
Place = tuple[str, Path_]
_EDITS = {
    "manifest.json": "manifest", "index.json": "index", "expected.json": "expected",
    "COMPLETE": "complete", "COMPLETE.0": "rank_complete",
}  # fmt: skip
_OF_COHORT = ("COMPLETE", "COMPLETE.0", "COMPLETE.1")
GONE = object()
"""In place of a value: the field is taken out."""
VALUES: tuple[Any, ...] = (
    GONE, None, True, -1, 0, 1, 2**63, 10**400, 0.5, float("nan"), float("inf"), 1e308, "", "x", "../x", "/etc/passwd",
    "s-0", "k1", "torch.float64", "a\nb", "\ud800", "0" * 64, [], {}, [1, 0], [[]], [None] * 3, {"a": 1}, {"": []},
)  # fmt: skip
ANY_VALUE = st.one_of(
    st.sampled_from(VALUES),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.one_of(st.integers(0, 1), st.floats(), st.text(max_size=3), st.none()), max_size=9),
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=3)), max_size=4),
)
_FORBIDDEN = (
    "import",
    "exec",
    "compile",
    "pickle.find_class",
    "os.system",
    "os.exec",
    "subprocess.Popen",
    "socket.connect",
)


def fields_of(content: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every field of a JSON file, the whole excepted."""
    if path:
        yield path
    below = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, item in below:
        yield from fields_of(item, (*path, key))


FIELDS: list[Place] = [(name, path) for name in _EDITS for path in fields_of(json.loads((ONE / name).read_text()))]
COHORT_FIELDS: list[Place] = [
    (name, path) for name in _OF_COHORT for path in fields_of(json.loads((TWO / name).read_text()))
]


def changed(content: Any, path: Path_, value: Any) -> None:
    """Put a value at a path, in place."""
    at = content
    for step in path[:-1]:
        at = at[step]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value


def check_field(place: Place, value: Any) -> bool:
    """A bundle with that value there; whether it is still valid."""
    name, path = place
    with tempfile.TemporaryDirectory() as folder:
        edit: dict[str, Any] = {_EDITS[name]: lambda content: changed(content, path, value)}
        try:
            bundle = edit_bundle(ONE, Path(folder) / "bundle", **edit)
        except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
            return False  # so broken that it cannot be sealed
        return check_bundle(bundle)


def check_cohort_field(place: Place, value: Any) -> bool:
    name, path = place
    with tempfile.TemporaryDirectory() as folder:
        cohort = Path(folder) / "cohort"
        shutil.copytree(TWO, cohort)
        content = json.loads((cohort / name).read_text())
        changed(content, path, value)
        try:
            (cohort / name).write_text(json.dumps(content, ensure_ascii=False))
        except UnicodeEncodeError:
            return False
        return check_bundle(cohort)


@cache
def _with_terms() -> bytes:
    """Our own file beside the format's, for the fixture."""
    draft = Draft.of(read_cohort(ONE).bundles[0])
    values = [0.5] * len(draft.index.samples)
    return render_terms(draft.index, draft.rank, dict.fromkeys(("pg_loss", "ppo_kl"), values))


def check_terms_field(path: Path_, value: Any) -> bool:
    """Its checksum is right again, unless the value stands in it."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        shutil.copytree(ONE, bundle)
        content = json.loads(_with_terms())
        changed(content, path, value)
        try:
            if path != ("sha256",) and "content" in content:
                content["sha256"] = hashlib.sha256(_dumped(content["content"])).hexdigest()
            (bundle / TERMS).write_bytes(_dumped(content))
        except UnicodeEncodeError:
            return False
        return check_bundle(bundle)


def _dumped(content: Any) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def terms_fields() -> list[Path_]:
    return list(fields_of(json.loads(_with_terms())))


def check_bytes(name: str, at: float, cut: int, new: bytes) -> bool:
    """A JSON file with other bytes in it, sealed again where it is sealed."""

    def spliced(data: bytes) -> bytes:
        start = int(at * len(data))
        return data[:start] + new + data[start + cut :]

    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        if name.startswith("COMPLETE"):
            shutil.copytree(ONE, bundle)
            (bundle / name).write_bytes(spliced((bundle / name).read_bytes()))
        else:
            edit_bundle(ONE, bundle, raw={name: spliced})
        return check_bundle(bundle)


def check_bundle(bundle: Path) -> bool:
    """Everything that must hold whatever the bundle holds; whether it is valid."""
    with watched(bundle):
        report = told(lambda: validate(bundle))
        told(lambda: inspect(bundle))
        told(lambda: replay_cohort(read_cohort(bundle)))
    if report is None:
        return False
    noted(" ".join(f"{one.file} {one.what}" for one in report.problems[:2]))
    for problem in report.problems:
        assert problem.file, problem
        assert problem.remedy, problem
        assert "\n" not in str(problem), problem
        assert len(str(problem)) < 2000, problem
    if report.valid:
        cohort = read_cohort(bundle)
        again = bundle.with_name("again")
        drafts = {found.rank: Draft.of(found) for found in cohort.bundles}
        # A rank's promise is refused where its redaction was not done: that is the writer's word, not the reader's.
        if len(drafts) == 1:
            write_bundle(again, *drafts.values())
        else:
            write_cohort(again, drafts)
        assert validate(again).valid
        assert [found.index for found in read_cohort(again).bundles] == [found.index for found in cohort.bundles]
    return bool(report.valid)


def check_payload(data: bytes) -> bool:
    """Whether the bytes are a tensor; torch must read the same from what is accepted."""
    with watched(ONE):
        tensor = told(lambda: parse_tensor(data), NotATensorFile)
    if tensor is None:
        return False
    assert tensor.nbytes <= len(data)
    theirs = torch.load(io.BytesIO(data), weights_only=True)
    assert isinstance(theirs, torch.Tensor)
    assert theirs.detach().numpy().tobytes() == np.ascontiguousarray(tensor).tobytes()
    assert tuple(theirs.shape) == tensor.shape
    return True


def spliced_program(data: bytes, at: float, cut: int, new: bytes) -> bytes:
    """The file with other bytes in its pickle, and every checksum right."""
    contents = {entry.name.partition("/")[2]: bytes(entry.data) for entry in read_entries(data)}
    pickle = contents["data.pkl"]
    start = int(at * len(pickle))
    return write_entries("kl", pickle[:start] + new + pickle[start + cut :], contents["data/0"])


_watching: list[str] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if event in _FORBIDDEN and not (event == "import" and args[0] in sys.modules):
        raise AssertionError(f"{event} {args[:1]} while a bundle was read")
    if event == "open" and isinstance(args[0], str):
        name = args[0]
        # Relative names are opened below a folder that is open already: they may be one component only.
        inside = name.startswith(_watching[0]) if "/" in name else name != ".."
        assert inside, f"opened {name!r} while {_watching[0]} was read"


@cache
def _begin_watching() -> None:
    """What the first replay and the first escaped text import, they import once, whatever the bundle."""
    replay_cohort(read_cohort(ONE))
    visible("\n")
    sys.addaudithook(_audit)


@contextmanager
def watched(bundle: Path) -> Iterator[None]:
    """Nothing outside the bundle's folder is opened meanwhile, and no code runs that is not running already."""
    _begin_watching()
    _watching.append(str(bundle.parent))
    try:
        yield
    finally:
        _watching.clear()


KL = (ONE / "payloads" / "kl.pt").read_bytes()
_PART = st.floats(0, 1, exclude_max=True)
_BYTES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"cposix\nsystem\n", b"ctorch\nFloatStorage\n", b"R", b".", b"\x80\x02", b"tQ", b"\x89", b"NaN", b"[["]
    ),
)

Case = tuple[str, st.SearchStrategy[Any], Callable[[Any], bool]]
CASES: tuple[Case, ...] = (
    ("fields", st.tuples(st.sampled_from(FIELDS), ANY_VALUE), lambda drawn: check_field(*drawn)),
    ("fields of ranks", st.tuples(st.sampled_from(COHORT_FIELDS), ANY_VALUE), lambda drawn: check_cohort_field(*drawn)),
    ("fields of terms", st.tuples(st.deferred(lambda: st.sampled_from(terms_fields())), ANY_VALUE),
     lambda drawn: check_terms_field(*drawn)),
    ("JSON bytes", st.tuples(st.sampled_from(list(_EDITS)), _PART, st.integers(0, 40), _BYTES),
     lambda drawn: check_bytes(*drawn)),
    ("payload bytes", st.tuples(_PART, st.integers(0, 60), _BYTES), lambda drawn: check_payload(_spliced(KL, *drawn))),
    ("payload programs", st.tuples(_PART, st.integers(0, 40), _BYTES),
     lambda drawn: check_payload(spliced_program(KL, *drawn))),
)  # fmt: skip


def _spliced(data: bytes, at: float, cut: int, new: bytes) -> bytes:
    start = int(at * len(data))
    return data[:start] + new + data[start + cut :]


def run(case: Case, examples: int, *, derandomize: bool = False) -> tuple[int, int]:
    """How many examples were tried, and how many were accepted; raises on the first that breaks a promise."""
    _, strategy, check = case
    counts = [0, 0]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(drawn=strategy)
    def one(drawn: Any) -> None:
        counts[0] += 1
        counts[1] += check(drawn)

    one()
    return counts[0], counts[1]


def every_field() -> tuple[int, int]:
    """Each field with each of the values; how many bundles, and how many were accepted."""
    found = [check_field(place, value) for place in FIELDS for value in VALUES]
    found += [check_cohort_field(place, value) for place in COHORT_FIELDS for value in VALUES]
    found += [check_terms_field(path, value) for path in terms_fields() for value in VALUES]
    return len(found), sum(found)


def every_byte() -> tuple[int, int]:
    """Each byte of a payload with each of its 255 other values, as it is and in a program that is sealed again."""
    pickle = len(next(entry.data for entry in read_entries(KL) if entry.name.endswith("data.pkl")))
    found = [check_payload(KL[:at] + bytes([code]) + KL[at + 1 :]) for at in range(len(KL)) for code in range(256)]
    found += [
        check_payload(spliced_program(KL, (at + 0.5) / pickle, 1, bytes([code])))
        for at in range(pickle)
        for code in range(256)
    ]
    return len(found), sum(found)


def main(minutes: float) -> None:
    for name, tried, accepted in (("every field", *every_field()), ("every byte", *every_byte())):
        print(f"{name}: {tried:,} tried, {accepted:,} accepted", flush=True)
    end = time.monotonic() + 60 * minutes
    totals = {case[0]: [0, 0] for case in CASES}
    while time.monotonic() < end:
        for case in CASES:
            for at, count in enumerate(run(case, 500)):
                totals[case[0]][at] += count
    for name, (tried, accepted) in totals.items():
        print(f"{name}: {tried:,} tried, {accepted:,} accepted")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
