"""Putting files on a disk so that a crash at any moment leaves either all of them under their name or a leftover.

Everything is written below a hidden name, fsynced, and renamed. What a rename meets decides between two writers.
"""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollbook.replay.bundle.layout import PAYLOADS, leftover_name
from rollbook.replay.bundle.writing.drafts import File, RankFiles
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import visible


def refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise BadInput(f"{visible(path)} exists: bundles are never overwritten, write to another path")


def taken(path: Path) -> BadInput:
    """What to raise where another writer was first."""
    return BadInput(f"{visible(path)} was written by someone else meanwhile: write to another path")


@contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """What the disk says, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write bundle {visible(path)}: {error.strerror}; check disk and folder"
        ) from None
    except ValueError as error:  # a NUL or what no file system can encode
        if "\0" not in str(path) and not isinstance(error, UnicodeError):
            raise
        raise BadInput(f"cannot write bundle {visible(path)}: not a path; write to another path") from None


@contextmanager
def hidden_folder(beside: Path) -> Iterator[Path]:
    """A new folder beside a path, under a name that says what it is; gone afterwards, unless it was renamed."""
    folder = beside.parent / leftover_name(beside.name, secrets.token_hex(8))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish_folder(folder: Path, path: Path) -> None:
    """Rename a folder to its final name, which must be free; raises `BadInput` when someone else took it."""
    try:
        folder.rename(path)
    except OSError:
        if os.path.lexists(path) and folder.exists():
            raise taken(path) from None
        raise
    sync_folder(path.parent)


def write_rank(folder: Path, files: RankFiles) -> None:
    """A rank's files into an empty folder: payloads, then JSON, then COMPLETE.<rank>, then COMPLETE."""
    (folder / PAYLOADS).mkdir()
    write_files(folder / PAYLOADS, files.payloads)
    write_files(folder, files.others)


def write_files(folder: Path, files: Iterable[File]) -> None:
    for file in files:
        _write(folder / file.name, file.content)
    sync_folder(folder)


def write_once(folder: Path, file: File, *, hidden_beside: Path) -> None:
    """A file that others look for while it is written: there in whole, or not at all. The same bytes may be written
    twice; the folder may be renamed meanwhile, and then takes nothing with it that is half written."""
    hidden = hidden_beside.parent / leftover_name(hidden_beside.name, secrets.token_hex(8))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # by its descriptor, which a rename leaves as it is
    try:
        _write(hidden, file.content)
        os.replace(hidden, file.name, dst_dir_fd=fd)
        os.fsync(fd)
    finally:
        os.close(fd)
        hidden.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
