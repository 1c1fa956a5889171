"""`rollbook broker`: a local Apache Kafka that stays until it is stopped."""

from pathlib import Path
from typing import Annotated

import typer

from rollbook.infra.broker.daemon import (
    DEFAULT_PORT,
    DaemonState,
    daemon_state,
    default_data_dir,
    start_daemon,
    stop_daemon,
)
from rollbook.infra.broker.files import broker_files
from rollbook.infra.broker.training import train
from rollbook.infra.looking.show import print_json
from rollbook.infra.settings import DEFAULT_BOOTSTRAP_SERVERS
from rollbook.replay.progress import busy
from rollbook.schemas.text import visible

app = typer.Typer(
    help="A local Apache Kafka broker from packages: no Docker, no Java to install. Listens on 127.0.0.1 only.",
    epilog="Example: rollbook broker start && rollbook topics create",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        file_okay=False,
        show_default="'broker' in ROLLBOOK_DATA_DIR or the user's data directory",
        help="Where the broker keeps its data.",
    ),
]


@app.command(epilog="Example: rollbook broker start --data-dir ./kafka --port 19092")
def start(
    folder: DataDir = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65535, show_default=str(DEFAULT_PORT), help="Its port.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the broker and return when it answers; it runs until `rollbook broker stop`. The data survives."""
    with busy("starting Apache Kafka"):
        started = start_daemon(_folder(folder), port)
    state = started.state
    if as_json:
        print_json({"was_running": started.was_running, **_plain(state, folder)})
        return
    word = "already running" if started.was_running else "started"
    print(f"{word}: Apache Kafka at {state.bootstrap_servers}, pid {state.process.pid}, {_data_in(folder)}")
    if state.bootstrap_servers != DEFAULT_BOOTSTRAP_SERVERS:
        print(f"to use it: export ROLLBOOK_BOOTSTRAP_SERVERS={state.bootstrap_servers}")


@app.command(epilog="Example: rollbook broker stop --data-dir ./kafka")
def stop(folder: DataDir = None) -> None:
    """Stop the broker in an orderly way, keeping its data. Nothing to stop is fine."""
    with busy("stopping Apache Kafka"):
        stopped = stop_daemon(_folder(folder))
    print(f"not running ({_data_in(folder)})" if stopped is None else f"stopped: pid {stopped.process.pid}")


@app.command(epilog="Example: rollbook broker status || rollbook broker start")
def status(folder: DataDir = None, as_json: AsJson = False) -> None:
    """Say whether the broker runs, and where. Exit code 0 when it does, 1 when not."""
    state = daemon_state(_folder(folder))
    if as_json:
        print_json(_plain(state, folder))
    elif state is None:
        print(f"not running ({_data_in(folder)})")
    else:
        where = f"{state.bootstrap_servers}, pid {state.process.pid}, cluster {state.cluster_id}"
        print(f"running: Apache Kafka at {where}, {_data_in(folder)}")
    if state is None:
        raise typer.Exit(1)


@app.command(epilog="Example: rollbook broker fetch")
def fetch() -> None:
    """Fetch and verify the broker's files now, so that later starts need no network and are quicker."""
    files = broker_files()
    with busy("preparing Java for quicker starts"):
        train(files)
    print(f"verified: {len(files.jars)} files, Java {files.java_version}")


def _plain(state: DaemonState | None, folder: Path | None) -> dict[str, object]:
    """For scripts: keys only ever grow."""
    return {
        "running": state is not None,
        "bootstrap_servers": None if state is None else state.bootstrap_servers,
        "pid": None if state is None else state.process.pid,
        "cluster_id": None if state is None else state.cluster_id,
        "data_dir": visible(_folder(folder), limit=4096),
    }


def _folder(folder: Path | None) -> Path:
    return default_data_dir() if folder is None else folder.absolute()


def _data_in(folder: Path | None) -> str:
    return f"data in {visible(_folder(folder), limit=4096)}"
