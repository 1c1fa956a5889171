"""Reading files that stay inside one folder: no link is followed, no special file opened, no size trusted."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.bundle.problems import CAPTURE_AGAIN, Problem, Refused
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder. Names given to its methods are single path components."""

    path: Path
    fd: int
    label: str = ""

    @contextmanager
    def subfolder(self, name: str) -> Iterator["Folder"]:
        label = f"{self.label}{name}"
        try:
            fd = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=self.fd)
        except OSError as error:
            raise Refused(Problem(label, "", _reason(error, "a folder"), CAPTURE_AGAIN)) from None
        try:
            yield Folder(self.path / name, fd, f"{label}/")
        finally:
            os.close(fd)

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a regular file of at most `limit` bytes; raises `Refused`."""
        label = f"{self.label}{name}"
        try:
            fd = os.open(name, _FLAGS, dir_fd=self.fd)
        except OSError as error:
            raise Refused(Problem(label, "", _reason(error, "a file"), CAPTURE_AGAIN)) from None
        try:
            # Judged before a Python file is made of it: that fails on a folder, which os.open does not.
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Refused(Problem(label, "", f"{_kind(status.st_mode)}, not a regular file", CAPTURE_AGAIN))
            if status.st_size > limit:
                what = f"{status.st_size:,} bytes, more than the {limit:,} that it can need"
                raise Refused(Problem(label, "", what, CAPTURE_AGAIN))
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(status.st_size + 1)
        except OSError as error:
            raise Refused(Problem(label, "", f"cannot be read ({error.strerror})", CAPTURE_AGAIN)) from None
        finally:
            os.close(fd)
        if len(data) != status.st_size:
            raise Refused(Problem(label, "", "changed while it was read", "wait until its writer is done"))
        return data

    def holds(self, name: str, file: str) -> bool:
        """Whether a folder of that name is here, no link, with such a file in it."""
        try:
            with self.subfolder(name) as below:
                return stat.S_ISREG(os.stat(file, dir_fd=below.fd, follow_symlinks=False).st_mode)
        except (OSError, Refused):
            return False

    def names(self) -> tuple[str, ...]:
        with os.scandir(self.fd) as entries:
            return tuple(sorted(entry.name for entry in entries))


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """The folder at `path`; raises `BadInput` when there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BadInput(f"no bundle at {visible(path)}: check the path (a bundle is a folder)") from None
    except NotADirectoryError:
        raise BadInput(f"{visible(path)} is a file, a bundle is a folder: give the folder that holds it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise BadInput(f"cannot open bundle {visible(path)}: {reason}; check path and permissions") from None
    try:
        yield Folder(path, fd)
    finally:
        os.close(fd)


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"


def _reason(error: OSError, noun: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, NotADirectoryError):
        return f"not {noun}, or a symbolic link, which is never followed"
    if error.errno == errno.ELOOP:
        return "a symbolic link, which is never followed"
    return f"cannot be opened ({error.strerror})"
