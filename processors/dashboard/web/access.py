"""Who may ask: by the name that is asked for, and by a token where not only this machine can reach the dashboard.

A page of another site must not reach it through the browser of somebody who can: it cannot set the header Host to one
of our names (DNS rebinding), does not have the cookie (SameSite=Strict), and reads no answer (no CORS headers).
"""

import hashlib
import hmac
import ipaddress
import re
from dataclasses import dataclass

from rollbook.infra.settings import TOKEN_VARIABLE
from rollbook.processors.address import Address
from rollbook.schemas.errors import BadInput

SHORTEST_TOKEN = 16
LONGEST_TOKEN = 512
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?P<bracketed>\[[0-9a-f:.]+\])(:\d{1,5})?|(?P<plain>[a-z0-9_.-]+)(:\d{1,5})?", re.ASCII)
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_TICKET = b"rollbook dashboard, ticket of a browser"


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one dashboard. `token` none: whoever reaches the address may ask.

    Raises BadInput where the address is no loopback one and there is no token, for a token that can be guessed or not
    be sent, and for a public name that is none.
    """

    address: Address
    token: str | None
    public_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token is not None:
            _check_token(self.token)
        elif not self.address.is_loopback:
            raise BadInput(
                f"--listen {self.address} can be reached from other machines: give a token with --token-file FILE or "
                f"{TOKEN_VARIABLE}, or listen on 127.0.0.1"
            )
        for name in self.public_names:
            if not _NAME.fullmatch(name.lower()):
                raise BadInput(
                    f"--public-name {name[:100]!a} is no host's name: give it without scheme and port, such as "
                    "rollbook.example.org"
                )

    def is_ours(self, host: str | None) -> bool:
        """Whether the header Host names this dashboard, whatever the port (who tunnels has another one).

        Where it listens on all addresses any of them will do: only a name can be rebound.
        """
        found = _HOST.fullmatch((host or "").lower())
        if found is None:
            return False
        name = (found["bracketed"] or found["plain"]).strip("[]").rstrip(".")
        if name in _LOOPBACK or name == self.address.host.lower() or name in map(str.lower, self.public_names):
            return True
        return self.address.is_everywhere and _is_ip(name)

    def is_known(self, authorization: str | None, ticket: str | None) -> bool:
        """Whether a request may be answered, by its header Authorization or its cookie."""
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        return (scheme.lower() == "bearer" and self.is_token(given.strip())) or _same(ticket or "", self.ticket)

    def is_token(self, given: str) -> bool:
        """Whether it is the token. Takes as long for a wrong one."""
        return self.token is not None and _same(given, self.token)

    @property
    def ticket(self) -> str:
        """What the cookie holds: who reads it cannot sign in elsewhere with it, and a restart does not end it."""
        return hmac.new((self.token or "").encode(), _TICKET, hashlib.sha256).hexdigest()

    @property
    def cookie(self) -> str:
        """Name of the cookie: browsers do not keep apart the ports of a host."""
        return f"rollbook-dashboard-{self.address.port}"


def is_from_elsewhere(origin: str | None, host: str | None) -> bool:
    """Whether a form was sent by a page that is not ours: a browser always says where it comes from."""
    return origin is None or host is None or origin.lower().partition("://")[2] != host.lower()


def _check_token(token: str) -> None:
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not _TOKEN.fullmatch(token):
        raise BadInput(
            f"the token of --token-file or {TOKEN_VARIABLE} is none that can be used: it needs {SHORTEST_TOKEN} to "
            f"{LONGEST_TOKEN} printable characters of ASCII without spaces, such as `openssl rand -hex 32` makes"
        )


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())
