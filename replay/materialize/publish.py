"""Putting an update's bundles under their names: all of them, also where an earlier attempt got no further than some.

1. everything is written into a hidden folder; 2. what is there under a name already is compared with it, byte by byte,
and is either the same or the update is refused; 3. what is missing is renamed, the provenance first: a bundle is never
seen without it. A crash within 3 leaves whole bundles, which the next attempt completes.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.bundle.layout import leftover_name
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.writing.disk import sync_folder
from rollbook.replay.bundle.writing.writer import write_bundle, write_cohort
from rollbook.replay.materialize.assemble import Ready
from rollbook.replay.materialize.provenance import provenance_path, write_provenance
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import visible

_COMPARED_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Published:
    """A bundle under its name. `was_there`: the same bytes were, before."""

    path: Path
    was_there: bool


def publish(out: Path, bundles: Sequence[Ready]) -> list[Published]:
    """Raises CannotWrite, with nothing renamed, when the format refuses one or another one has its name, and
    EnvironmentFault when the disk does not play along."""
    staging = out / leftover_name(bundles[0].bundle_id, secrets.token_hex(8))
    try:
        for bundle in bundles:
            _stage(staging, bundle)
        known = {bundle.bundle_id: _is_there(staging, out, bundle) for bundle in bundles}
        published = [_publish(staging, out, bundle, known[bundle.bundle_id]) for bundle in bundles]
        sync_folder(out)
    except OSError as error:
        raise EnvironmentFault(f"cannot write into {visible(out)}: {error.strerror}; check disk and folder") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return published


def _stage(staging: Path, bundle: Ready) -> None:
    target = staging / bundle.bundle_id
    try:
        if len(bundle.drafts) == 1:
            write_bundle(target, *bundle.drafts.values())
        else:
            write_cohort(target, bundle.drafts)
    except BadInput as refused:
        whats = tuple(map(str, refused.problems)) if isinstance(refused, BadBundle) else (str(refused),)
        raise CannotWrite(NotWritten.NOT_REPRESENTABLE, *whats, step_id=bundle.step_id) from None
    write_provenance(provenance_path(target), bundle.provenance)


def _is_there(staging: Path, out: Path, bundle: Ready) -> bool:
    """Whether exactly this bundle is there already; raises CannotWrite when another one is."""
    target = out / bundle.bundle_id
    if not os.path.lexists(target):
        return False
    ours, theirs = provenance_path(staging / bundle.bundle_id), provenance_path(target)
    # One that is missing was not copied along, and is written anew; ours may be in its place already.
    both = ours.exists() and os.path.lexists(theirs)
    if not _is_same(staging / bundle.bundle_id, target) or (both and not _is_same(ours, theirs)):
        raise CannotWrite(
            NotWritten.EXISTS,
            f"{target} exists and is not what would be written (other format or redaction, another log, or changed "
            "since): give another --out",
            step_id=bundle.step_id,
        )
    return True


def _publish(staging: Path, out: Path, bundle: Ready, was_there: bool) -> Published:
    target = out / bundle.bundle_id
    if not was_there or not provenance_path(target).exists():
        provenance_path(staging / bundle.bundle_id).replace(provenance_path(target))
    if not was_there:
        try:
            (staging / bundle.bundle_id).rename(target)
        except OSError:
            # Someone else wrote it meanwhile: just the same, or something else.
            if not os.path.lexists(target) or not (staging / bundle.bundle_id).exists():
                raise
            was_there = _is_there(staging, out, bundle)
    return Published(target, was_there)


def _is_same(ours: Path, theirs: Path) -> bool:
    """Files with the same bytes, or folders with the same files; links are never followed."""
    kinds = [stat.S_IFMT(path.lstat().st_mode) for path in (ours, theirs)]
    if kinds[0] != kinds[1]:
        return False
    if kinds[0] == stat.S_IFREG:
        return _same_bytes(ours, theirs)
    names = [sorted(entry.name for entry in path.iterdir()) for path in (ours, theirs)]
    return names[0] == names[1] and all(_is_same(ours / name, theirs / name) for name in names[0])


def _same_bytes(ours: Path, theirs: Path) -> bool:
    with ours.open("rb") as one, theirs.open("rb") as other:
        while True:
            chunk = one.read(_COMPARED_BYTES)
            if chunk != other.read(_COMPARED_BYTES):
                return False
            if not chunk:
                return True
