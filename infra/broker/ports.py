"""Ports on the loopback interface: is one free, and which one is."""

import random
import socket

from rollbook.infra.broker.config import HOST
from rollbook.schemas.errors import EnvironmentFault

# Below the range from which the kernel takes ports for outgoing connections, so that none of those can land on a
# broker's port between the look and the bind, or while the broker is down for a restart.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now, whatever address the present holder listens on.

    Raises EnvironmentFault for one that is kept for the system.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does: TIME_WAIT is not busy
        try:
            probe.bind((HOST, port))
        except PermissionError as fault:
            raise EnvironmentFault(
                f"you may not listen on port {port} of {HOST}: choose one from 1024 on with --port"
            ) from fault
        except OSError:
            return False
        return True


def free_port() -> int:
    """A free port, drawn at random so that brokers started at the same moment rarely draw the same."""
    for _ in range(_TRIES):
        port = random.SystemRandom().randint(_LOWEST, _HIGHEST)
        if is_free(port):
            return port
    raise EnvironmentFault(f"no free port between {_LOWEST} and {_HIGHEST} on {HOST}: stop something, or give a port")
