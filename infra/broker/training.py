"""The cache that halves a node's start-up: the JDK's ahead-of-time cache, made once per set of files.

It is made from a broker that is started and stopped for it, and is only ever a help: a JVM that finds it unfit ignores
it.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.broker.config import NodeLayout
from rollbook.infra.broker.files import BrokerFiles
from rollbook.infra.broker.node import start_node, stop_process
from rollbook.infra.broker.ports import free_port
from rollbook.infra.broker.process import start_attached


def train(files: BrokerFiles) -> None:
    """Make the cache, unless it is there. Takes about eight seconds."""
    if files.aot_cache.exists():
        return
    with TemporaryDirectory(prefix="rollbook-training-") as folder:
        draft = files.aot_cache.with_suffix(f".{Path(folder).name}")

        def spawn(command: list[str], output: Path) -> "subprocess.Popen[bytes]":
            return start_attached([command[0], f"-XX:AOTCacheOutput={draft}", *command[1:]], output)

        node = start_node(NodeLayout(Path(folder) / "broker"), free_port(), files, spawn)
        stop_process(node.process)  # the JVM writes the cache on its way out
        if draft.exists():
            draft.replace(files.aot_cache)
