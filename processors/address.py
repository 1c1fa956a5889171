"""A host and a port on the command line: where a server of ours listens."""

import ipaddress
import os
from dataclasses import dataclass

from rollbook.schemas.errors import BadInput, EnvironmentFault

_SHOWN = 100
_LONGEST_HOST = 255


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
        is_host = 0 < len(bare) <= _LONGEST_HOST and bare.isprintable() and not any(one in "[]" for one in bare)
        if not is_host or (":" in bare and bare == host) or not is_port:
            raise BadInput(f"{option} {text[:_SHOWN]!a} is no HOST:PORT: {_remedy(text, usual)}")
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

    def not_to_be_had(self, option: str, error: OSError | UnicodeError) -> EnvironmentFault:
        """What is said where a server cannot listen there."""
        cause = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:  # else of a name's look-up
            cause = os.strerror(error.errno)
        return EnvironmentFault(
            f"{option} {self}: cannot listen there ({cause}): choose another address, or end what listens on it"
        )

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _remedy(text: str, usual: int) -> str:
    """Where it is a host alone, as many write it, its port is what is missing."""
    try:  # without a zone, in which anything may stand
        host = ipaddress.ip_address(text.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        if not text.isascii() or not text.replace(".", "").replace("-", "").isalnum() or text.isdigit():
            return f"use for example 127.0.0.1:{usual} or [::1]:{usual}"
        return f"the port is missing, use {text[:_SHOWN]}:{usual}"
    return f"the port is missing, use {Address(str(host), usual)}"
