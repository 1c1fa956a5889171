"""A host and a port on the command line: where a server of ours listens."""

import ipaddress
from dataclasses import dataclass

from rollbook.schemas.errors import BadInput

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    @staticmethod
    def parse(text: str, option: str, usual: int) -> "Address":
        """`HOST:PORT`, with brackets around a host that has colons itself. Raises BadInput, which names the option and
        shows its usual port."""
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
        if not bare or (":" in bare and bare == host) or not bare.isprintable() or not is_port:
            raise BadInput(
                f"{option} {text[:_SHOWN]!a} is no HOST:PORT: use for example 127.0.0.1:{usual} or [::1]:{usual}"
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
