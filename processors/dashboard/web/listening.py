"""The socket on which the dashboard listens."""

import socket

from rollbook.processors.address import Address

DEFAULT_PORT = 9401
_BACKLOG = 64


def open_socket(address: Address) -> socket.socket:
    """A socket that listens there, before anything else is begun. Raises EnvironmentFault."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        raise address.not_to_be_had("--listen", error) from None
