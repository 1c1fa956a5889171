"""A node's data directory: ours or foreign, in use or not, formatted once with a cluster id of its own."""

import base64
import fcntl
import subprocess
import uuid

from rollbook.infra.broker.config import NodeLayout, unusable_in
from rollbook.infra.broker.files import BrokerFiles
from rollbook.infra.broker.jvm import java_command
from rollbook.infra.broker.process import java_environment
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import visible

_FORMAT_TIMEOUT_S = 60


def make_directory(layout: NodeLayout) -> None:
    """Make the data directory if need be; refuse one that holds something else."""
    path = layout.data_dir
    unusable = unusable_in(path)
    if unusable is not None:
        raise BadInput(f"{visible(path)}: Kafka cannot keep data in a path with {unusable!a} in it: choose another")
    try:
        path.mkdir(parents=True, exist_ok=True)
        others = [entry for entry in path.iterdir() if entry != layout.start_lock]
        foreign = bool(others) and not layout.server_properties.exists()
    except OSError as fault:
        raise BadInput(f"{path}: cannot be a broker's data directory ({fault.strerror}): choose another") from fault
    if foreign:
        raise BadInput(f"{path}: not empty and not a broker's data directory: choose an empty or a new one")


def check_not_in_use(layout: NodeLayout) -> None:
    if is_in_use(layout):
        raise EnvironmentFault(
            f"{layout.data_dir}: another broker is using this data directory: stop it, or choose another"
        )


def is_in_use(layout: NodeLayout) -> bool:
    """Whether a living broker holds the lock that Kafka takes on its log directory."""
    try:
        with (layout.log_dir / ".lock").open("r+") as handle:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def cluster_id(layout: NodeLayout) -> str | None:
    """The id that the log directory was formatted with; None before that."""
    try:
        text = layout.meta_properties.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise _damaged(layout, str(fault.strerror)) from fault
    ids = [line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("cluster.id=")]
    if not ids or not ids[0].isascii():
        raise _damaged(layout, "it names no cluster.id")
    return ids[0]


def _damaged(layout: NodeLayout, why: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{visible(layout.meta_properties)}: damaged ({why}): restore or delete {visible(layout.data_dir)}"
    )


def ensure_formatted(layout: NodeLayout, files: BrokerFiles) -> str:
    """Format the log directory the first time; the cluster id. The configuration must be written before."""
    known = cluster_id(layout)
    if known is not None:
        return known
    fresh = _new_cluster_id()
    tool = ("kafka.tools.StorageTool", "format", "-t", fresh, "-c", str(layout.server_properties))
    command = java_command(files, *tool)
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_FORMAT_TIMEOUT_S,
        check=False,
        env=java_environment(),
    )
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        why = next((line for line in lines if "Exception" in line), lines[-1])
        raise EnvironmentFault(
            f"{visible(layout.log_dir)}: formatting failed ({visible(why)}): check space and permissions, or choose "
            "another folder"
        )
    return fresh


def _new_cluster_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):  # Kafka's tool would take it for an option
            return text
