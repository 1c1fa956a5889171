"""Where the dashboard listens: an address of the command line, and the socket that stands for it."""

import ipaddress
import socket
from dataclasses import dataclass

from rollbook.schemas.errors import BadInput, EnvironmentFault

DEFAULT_PORT = 9401
_BACKLOG = 64
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 takes a free one."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> "Address":
        """`HOST:PORT`, with brackets around a host that has colons itself. Raises BadInput."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
        if not bare or (":" in bare and bare == host) or not bare.isprintable() or not is_port:
            raise BadInput(
                f"--listen {text[:_SHOWN]!a} is no HOST:PORT: use for example 127.0.0.1:{DEFAULT_PORT} or "
                f"[::1]:{DEFAULT_PORT}"
            )
        return Address(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can ask. A name is not, but for localhost: who knows what it stands for."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_everywhere(self) -> bool:
        """Whether it stands for all addresses of the machine."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def open_socket(address: Address) -> socket.socket:
    """A socket that listens there, before anything else is begun. Raises EnvironmentFault."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise EnvironmentFault(
            f"--listen {address}: cannot listen there ({cause}): choose another address, or end what listens on it"
        ) from None
