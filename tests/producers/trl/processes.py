"""Functions in processes of their own, that find one another as torchrun's do; they are forked from one that has
imported torch and TRL already, since that is most of the time."""

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")
_PATIENCE_S = 240.0
_HERE = "rollbook.tests.producers.trl.tiny"


def run(count: int, job: Callable[..., T], *given: Any) -> list[T]:
    """What the job returned in each of so many processes, by rank. Raises AssertionError with the first trace."""
    processes, pipes = start(count, job, *given)
    results: dict[int, T] = {}
    try:
        while len(results) < count:
            left = {pipe: rank for rank, pipe in pipes.items() if rank not in results}
            ready = wait(left, _PATIENCE_S)
            assert ready, f"the processes did not end within {_PATIENCE_S:g} s"
            results.update({left[pipe]: result(left[pipe], pipe) for pipe in left if pipe in ready})
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [results[rank] for rank in range(count)]


def start(count: int, job: Callable[..., T], *given: Any) -> tuple[list[BaseProcess], dict[int, Connection]]:
    """The processes, and by rank the pipe on which each sends its result."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_HERE])
    port = _free_port()
    processes: list[BaseProcess] = []
    pipes: dict[int, Connection] = {}
    for rank in range(count):
        pipes[rank], theirs = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(theirs, rank, count, port, job, given), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
    return processes, pipes


def _serve(pipe: Connection, rank: int, count: int, port: int, job: Callable[..., T], given: tuple[Any, ...]) -> None:
    if count > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
        _know_cpus_by_number()
    try:
        sent: tuple[bool, Any] = (True, job(*given))
    except BaseException:
        sent = (False, traceback.format_exc())
    pipe.send_bytes(pickle.dumps(sent))
    pipe.close()
    os._exit(0)


def _know_cpus_by_number() -> None:
    """transformers 5.17, the newest beside a click that Faust allows, resumes an optimizer of several processes to
    `cpu:0`, a place that torch calls `cpu`."""
    import torch

    torch.serialization.register_package(
        0, lambda stored: None, lambda stored, place: stored if place.startswith("cpu:") else None
    )


def result(rank: int, pipe: Connection) -> Any:
    """What a process sent. Raises AssertionError where it failed or died."""
    sent = None
    with suppress(EOFError):
        sent = pickle.loads(pipe.recv_bytes())
    assert sent is not None, f"process {rank} died"
    done, result = sent
    assert done, f"process {rank} failed:\n{result}"
    return result


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
