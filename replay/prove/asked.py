"""Which tasks should not have been trained on, in each form in which a log may have them."""

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from rollbook.replay.history.arguments import Place, path_of, texts_of
from rollbook.replay.prove.names import NO_DIGEST, NO_NAME, UUID, Name, Unfit, checked, hash_in, names_in
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.rollout import Generated, TaskSource
from rollbook.schemas.text import visible

_SHORTEST_CUT = 12
"""First digits that are told as those of a hash: as many as a proof's table shows."""
_DIGITS = 64
_IDENTIFIER = re.compile(r"\w[\w.+-]{0,63}", re.ASCII)
_KEPT_CHARACTERS = 24
_HEX = frozenset("0123456789abcdef")
Beginnings = dict[int, dict[str, str]]
"""By length the first digits of hashes, with the name that asks."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The names that ask, and by each form that may stand in the log the name that it is of. Clients hash ids that are
    no short names; where their redaction has a key, it is in these hashes and in those of prompts."""

    prompt_hashes: frozenset[str]
    task_ids: frozenset[str]
    _as_hash: Mapping[str, str]
    _as_id: Mapping[str, str]
    _begun: Beginnings
    """Of ids that may be the first digits of a prompt hash."""
    _cut: Beginnings = field(default_factory=dict, compare=False)
    """Of prompt hashes, filled for each length that an id of the log has: some ids are the first digits of one."""

    @classmethod
    def of(cls, prompt_hashes: Iterable[str] = (), task_ids: Iterable[str] = (), *, key: bytes = b"") -> "Asked":
        """`key`: that of the clients' redaction, where it has one. Clients without it are looked for, too, and those
        whose key has no end of a line. Raises BadInput for what is no hash, or can be no id, and where nothing asks: of
        no tasks all would be absent."""
        if not isinstance(key, bytes):
            raise BadInput(f"key={visible(repr(key))} is no bytes: give those of the file that the clients' key is in")
        given_hashes, given_ids = texts_of(prompt_hashes, "prompt_hashes"), texts_of(task_ids, "task_ids")
        if not given_hashes and not given_ids:
            raise BadInput("nothing asks: give prompt_hashes or task_ids, or leave `asked` out")
        keys = tuple(dict.fromkeys((b"", key, key.rstrip(b"\r\n"))))
        names = {*(_name(text, may_be_id=False) for text in given_hashes), *map(_name, given_ids)}
        hashes = frozenset(name.text for name in names if name.is_hash)
        ids = frozenset(name.text for name in names if not name.is_hash)
        as_hash = {form: one for one in ids for form in _hashes(_hashed(one), keys)}
        as_hash |= {form: one for one in hashes for form in _hashes(one, keys)}
        as_id = {form: one for one in hashes for form in (one, f"sha256:{one}", *_published((one, one.upper()), keys))}
        as_id |= {form: one for one in ids for form in (*_spellings(one), *_published(_spellings(one), keys))}
        begun: Beginnings = {}
        for one in ids:
            if _may_begin(one.lower()):
                begun.setdefault(len(one), {})[one.lower()] = one
        return cls(hashes, ids, as_hash, as_id, begun)

    @property
    def counts(self) -> tuple[int, int]:
        """How many prompt hashes, and how many task ids."""
        return len(self.prompt_hashes), len(self.task_ids)

    def names(self, task: TaskSource) -> tuple[str, ...]:
        """Those of a task."""
        return tuple(dict.fromkeys(name for name in self._found(task) if name is not None))

    def names_of(self, record: Generated) -> tuple[str, ...]:
        """Those of a trajectory's task; its own id, and that of its group, name it too where they are UUIDs: a shorter
        one may well be the id of another task."""
        identity = record.identity
        own = (self._of_id(one) for one in (identity.group_id, identity.trajectory_id) if UUID.fullmatch(one))
        return tuple(dict.fromkeys([*self.names(record.task), *(name for name in own if name is not None)]))

    def truncated(self, known: Set[str]) -> frozenset[str]:
        """What clients that truncate names may have published for those that are not known to be in the log."""
        return frozenset(form for one in self.task_ids - known for form in _truncated(one))

    def may_hide(self, task: TaskSource, truncated: Set[str] = frozenset()) -> bool:
        """Whether the log does not have all of what the names are to be compared with."""
        no_hash = bool(self.prompt_hashes) and task.prompt_hash == NO_DIGEST
        return no_hash or task.task_id in truncated or (bool(self.task_ids) and task.task_id == NO_NAME)

    def _of_id(self, published: str) -> str | None:
        """Of UUIDs upper and lower case are one."""
        return self._as_id.get(published.lower() if UUID.fullmatch(published) else published)

    def _found(self, task: TaskSource) -> Iterator[str | None]:
        yield self._as_hash.get(task.prompt_hash)
        yield self._of_id(task.task_id) or self._as_id.get(hash_in(task.task_id) or "")
        for length, begun in self._begun.items():
            yield begun.get(task.prompt_hash[:length])
        if self.prompt_hashes and _may_begin(first := task.task_id.lower()):
            cut = self._cut.get(len(first))
            if cut is None:
                cut = self._cut[len(first)] = {one[: len(first)]: one for one in self.prompt_hashes}
            yield cut.get(first)


def _name(text: str, *, may_be_id: bool = True) -> Name:
    digits = hash_in(text)
    if digits is None and not may_be_id:
        raise BadInput(f"'{visible(text)}' is no prompt hash: give its 64 hexadecimal digits")
    try:
        return checked(Name(text, is_hash=False) if digits is None else Name(digits, is_hash=True))
    except ValueError as why:
        raise BadInput(f"'{visible(text)}' {why}") from None


def _hashes(digest: str, keys: Sequence[bytes]) -> Iterator[str]:
    """A prompt hash as clients publish it."""
    return (_hashed(digest, key) if key else digest for key in keys)


def _published(names: Iterable[str], keys: Sequence[bytes]) -> Iterator[str]:
    """Names as clients publish them that are no short identifiers."""
    return (f"sha256:{_hashed(name, key)}" for name in names for key in keys)


def _hashed(text: str, key: bytes = b"") -> str:
    """As `rollbook.producers.redaction.policy` does."""
    data = text.encode("utf-8", "surrogatepass")
    return hmac.new(key, data, "sha256").hexdigest() if key else hashlib.sha256(data).hexdigest()


def _spellings(name: str) -> tuple[str, ...]:
    """One text, however its accents are encoded; of a UUID both cases."""
    if UUID.fullmatch(name):
        return tuple(dict.fromkeys((name, name.lower(), name.upper())))
    return tuple(dict.fromkeys((name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")))))


def _truncated(name: str) -> Iterator[str]:
    """As `rollbook.producers.redaction.policy` may do, of what is no short identifier: the scheme of a place, the last
    part of a path, the beginning of a text."""
    if _IDENTIFIER.fullmatch(name):
        return
    yield name.split("://")[0]
    yield re.split(r"[\\/]", name.rstrip("\\/"))[-1]
    yield name[:_KEPT_CHARACTERS].rstrip()
    for word in re.finditer(r"\s\S", name[:_KEPT_CHARACTERS]):
        yield name[: word.start()].rstrip()


def _may_begin(text: str) -> bool:
    return _SHORTEST_CUT <= len(text) < _DIGITS and _HEX.issuperset(text)


def read_asked(path: Place, *, key: bytes = b"") -> Asked:
    """The prompt hashes and task ids of a file: a line each, as JSON, or as a table. Raises BadInput."""
    try:
        text = path_of(path, "path").read_text(encoding="utf-8-sig")
    except OSError as fault:
        raise BadInput(f"{visible(path)} cannot be read ({fault.strerror}): give prompt hashes or task ids") from None
    except UnicodeDecodeError:
        raise BadInput(f"{visible(path)} is no UTF-8 text: give prompt hashes or task ids, a line each") from None
    try:
        names = frozenset(names_in(text))
    except Unfit as fault:
        raise BadInput(f"{visible(path)} {visible(fault, 1000)}") from None
    if not names:
        raise BadInput(f"{visible(path)} names no task: give prompt hashes or task ids, a line each")
    return Asked.of((one.text for one in names if one.is_hash), (one.text for one in names if not one.is_hash), key=key)
