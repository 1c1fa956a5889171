"""One Kafka node: the command, start, readiness, stop. Knows nothing of who owns it or for how long."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.broker.config import HOST, NodeExtras, NodeLayout, write_config
from rollbook.infra.broker.files import BrokerFiles
from rollbook.infra.broker.jvm import java_command
from rollbook.infra.broker.ports import free_port, is_free
from rollbook.infra.broker.probe import answering_cluster
from rollbook.infra.broker.storage import check_not_in_use, ensure_formatted, make_directory
from rollbook.schemas.errors import EnvironmentFault

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05


_EXCEPTION = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error): (?P<cause>.+)")

Spawn = Callable[[list[str], Path], "subprocess.Popen[bytes]"]


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A node that has answered."""

    process: "subprocess.Popen[bytes]"
    port: int
    cluster_id: str


def start_node(
    layout: NodeLayout, port: int, files: BrokerFiles, spawn: Spawn, extras: NodeExtras | None = None
) -> RunningNode:
    """Start a node and wait until it answers as itself. Raises BadInput or EnvironmentFault, leaving no process."""
    make_directory(layout)
    check_not_in_use(layout)
    if not is_free(port):
        raise port_is_busy(port)
    write_config(layout, port, free_port(), extras or NodeExtras())
    cluster_id = ensure_formatted(layout, files)
    log_offset = layout.log_file.stat().st_size if layout.log_file.exists() else 0
    logging = f"-Dlog4j2.configurationFile={layout.log4j2_properties}"
    command = java_command(files, logging, "kafka.Kafka", str(layout.server_properties))
    process = spawn(command, layout.output_file)
    try:
        _wait_ready(process, port, cluster_id, layout, log_offset)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return RunningNode(process, port, cluster_id)


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and SIGKILL for one that does not listen."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_TIMEOUT_S)
        return
    process.kill()
    process.wait()


def port_is_busy(port: int) -> EnvironmentFault:
    cluster = answering_cluster(f"{HOST}:{port}", timeout_s=2.0)
    holder = f"another Kafka broker (cluster {cluster})" if cluster else "another program"
    return EnvironmentFault(
        f"port {port} on {HOST} is used by {holder}: stop it, choose another with --port, "
        f"or use it with ROLLBOOK_BOOTSTRAP_SERVERS={HOST}:{port}"
    )


def _wait_ready(
    process: "subprocess.Popen[bytes]", port: int, cluster_id: str, layout: NodeLayout, log_offset: int
) -> None:
    """Ready is: our process lives AND whoever answers on the port has our cluster id (another broker may hold it)."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        if process.poll() is not None:
            reason = _why_it_ended(layout, log_offset)
            raise EnvironmentFault(f"the broker ended while starting (code {process.returncode}): {reason}")
        if not is_free(port):
            answer = answering_cluster(f"{HOST}:{port}", timeout_s=5.0)
            if answer == cluster_id and process.poll() is None:
                return
            if answer is not None:
                raise port_is_busy(port)
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"the broker did not answer within {_START_TIMEOUT_S:.0f} s: see {layout.log_file}")
        time.sleep(_POLL_S)


def _why_it_ended(layout: NodeLayout, log_offset: int) -> str:
    """The cause by this start's log: the last exception's own words, else the last ERROR line, else where to look."""
    where = f"see {layout.log_file} and {layout.output_file.name} beside it"
    try:
        with layout.log_file.open("rb") as file:
            file.seek(log_offset)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return where
    causes = [match["cause"] for line in lines if (match := _EXCEPTION.match(line))]
    errors = [line for line in lines if " ERROR " in line or " FATAL " in line]
    cause = (causes or errors or [""])[-1]
    return f"{cause}; {where}" if cause else where
