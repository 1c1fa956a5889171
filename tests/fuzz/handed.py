"""Files that a process is handed by whoever starts it: tokens, keys, and what the demo's processes tell one another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.processes.folder import Plan, Release, RunFolder, SavedCheckpoint
from rollbook.infra.settings import Settings
from rollbook.processors.address import Address
from rollbook.processors.commands.dashboard import _token
from rollbook.processors.dashboard.web.access import Access
from rollbook.producers.redaction.policy import Redaction
from rollbook.replay.commands.prove import _key
from rollbook.replay.prove.asked import Asked
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import TaskSource
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.fuzz.jsons import changed as json_changed
from rollbook.tests.fuzz.target import Target, refusals, told

_RUN = "plan", "cluster", "checkpoint", "policy-0001"


@contextmanager
def _file(data: bytes, name: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        (path := Path(folder) / name).write_bytes(data)
        yield path


def token(data: bytes) -> bool:
    """The dashboard's token: taken, and then it lets in and nothing else does; or refused without being shown."""
    with _file(data, "token") as path:
        found = told(lambda: _token(path))
    access = None if found is None else told(lambda: Access(Address("0.0.0.0", 9401), found))
    if access is None or found is None:
        assert not any(len(line) > 8 and line in said for said in refusals for line in (found or "").split())
        return False
    assert access.is_known(f"Bearer {found}", None)
    assert not access.is_known(f"Bearer {found}x", None)
    return True


def redaction_key(data: bytes) -> bool:
    """The key of the clients' redaction: what was published with it is found, whether a line's end is of it or not."""
    with _file(data, "key") as path:
        key = told(lambda: _key(path))
    if key is None:
        return False
    asked = Asked.of(prompt_hashes=["3f" * 32], task_ids=["held out/17"], key=key)
    for clients in (key, key.rstrip(b"\r\n")):
        by_hash = Redaction(key=clients).task(_task("3f" * 32, "another"))
        by_id = Redaction(key=clients).task(_task("0" * 63 + "1", "held out/17"))
        assert asked.names(by_hash) == ("3f" * 32,), by_hash
        assert asked.names(by_id) == ("held out/17",), by_id
    return True


def _task(prompt_hash: str, task_id: str) -> TaskSource:
    return TaskSource(task_id=task_id, prompt_hash=prompt_hash, dataset="d", row=1)


def demo_folder(data: bytes) -> bool:
    """A file of the demo's folder; which one, the first byte says."""
    name = _RUN[data[0] % len(_RUN)] if data else _RUN[0]
    with _file(data[1:], f"{name}.json") as path:
        folder = RunFolder(path.parent)
        ask: dict[str, Callable[[], Any]] = {
            "plan": folder.plan,
            "cluster": folder.cluster,
            "checkpoint": folder.last_checkpoint,
            "policy-0001": lambda: folder.release(1),
        }
        return told(ask[name]) is not None


@cache
def _of_demo() -> Sequence[bytes]:
    release = Release(PolicyRef(version=1, artifact_hash="a" * 64), (0, 1))
    with TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        folder.share_plan(Plan("demo", DemoConfig()))
        folder.share_cluster(Settings())
        folder.share_checkpoint(SavedCheckpoint(Checkpoint(id="c", digest="c" * 64), release))
        folder.announce(release)
        return [bytes([at]) + (folder.path / f"{one}.json").read_bytes() for at, one in enumerate(_RUN)]


TARGETS = (
    Target(
        "token-file",
        "the dashboard's --token-file",
        lambda: [b"3f" * 32 + b"\n", b"\xef\xbb\xbf" + b"a1" * 16, b" " + b"-_." * 12 + b"\r\n"],
        token,
        words=(b"~", b"=", b"\xff", b"a" * 500),
    ),
    Target(
        "redaction-key",
        "the key of the clients' redaction: --redaction-key",
        lambda: [b"3f" * 32 + b"\n", bytes(range(32)), b"k"],
        redaction_key,
        words=(b"\r\n", b"\x00"),
    ),
    Target(
        "demo-folder",
        "a JSON file of the demo's folder",
        _of_demo,
        demo_folder,
        lambda rng, data: data[:1] + json_changed(rng, data[1:]),
    ),
)
