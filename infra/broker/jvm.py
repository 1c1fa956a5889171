"""The Java command line, and the cache that halves a node's start-up.

The cache (the JDK's ahead-of-time cache) is made once per set of files by `train`, from a broker that is started and
stopped for it. It is only ever a help: a JVM that finds it unfit ignores it.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.broker.files import BrokerFiles

# Serial collector and first compiler only: half the start-up time and memory, and no throughput lost at our size.
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Djava.awt.headless=true")

# JDK 25 confuses two entries of the cache's adapter code, notices, and says so in the output: leave that part unused.
_NO_ADAPTERS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching")


def java_command(files: BrokerFiles, *arguments: str) -> list[str]:
    """`java` with our options and class path; the arguments are properties, the main class and its own arguments."""
    cache = (f"-XX:AOTCache={files.aot_cache}", *_NO_ADAPTERS) if files.aot_cache.exists() else ()
    return [str(files.java), *cache, *_OPTIONS, "-cp", files.class_path, *arguments]


def train(files: BrokerFiles) -> None:
    """Make the cache, unless it is there. Takes about eight seconds."""
    from rollbook.infra.broker.config import NodeLayout
    from rollbook.infra.broker.node import start_node, stop_process
    from rollbook.infra.broker.ports import free_port
    from rollbook.infra.broker.process import start_attached

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
