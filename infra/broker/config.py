"""The node's configuration, as text: one combined KRaft node on 127.0.0.1, small and quick to come back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"

_SERVER_PROPERTIES = """\
# Written by rollbook at each start; edits are lost.
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}{more_listeners}
advertised.listeners=PLAINTEXT://{host}:{port}{more_listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{more_protocols}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
log.dirs={log_dir}

# Topics are made by `rollbook topics create`, with their settings, never by a typing error.
auto.create.topics.enable=false

# One node: internal topics cannot have more replicas, and need no more partitions.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1

# A restart after a kill waits until the old session has ended: 13 s by default, 4 s so.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300

# A single consumer should not wait for company, and a dead one should be noticed soon.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000

# The cleaner's default buffer alone is half of our heap; deleted topics free their disk at once.
log.cleaner.dedupe.buffer.size=16777216
log.segment.delete.delay.ms=1000
"""

_LOG4J2_PROPERTIES = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={log_file}
appender.file.filePattern={log_file}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}} %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=info
"""


@dataclass(frozen=True, slots=True)
class NodeExtras:
    """What a node has beside the plain one: listeners, each named after its security protocol, and properties, which
    count more than ours."""

    listeners: Mapping[str, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where a node keeps what, below its data directory."""

    data_dir: Path

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "log"

    @property
    def meta_properties(self) -> Path:
        """Written when the log directory is formatted; holds the cluster id."""
        return self.log_dir / "meta.properties"

    @property
    def server_properties(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def log4j2_properties(self) -> Path:
        return self.data_dir / "log4j2.properties"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "broker.log"

    @property
    def output_file(self) -> Path:
        """What the JVM itself prints; empty unless something is badly wrong."""
        return self.data_dir / "broker.out"

    @property
    def start_lock(self) -> Path:
        """Held while a detached broker is being started."""
        return self.data_dir / ".start.lock"

    @property
    def state_file(self) -> Path:
        """Which process runs here (detached brokers only)."""
        return self.data_dir / "broker.json"


def write_config(layout: NodeLayout, port: int, controller_port: int, extras: NodeExtras) -> None:
    """Write both files anew, so that ports and paths are always those of this start."""
    log_dir, log_file = _value(layout.log_dir), _value(layout.log_file)
    server = _SERVER_PROPERTIES.format(
        host=HOST,
        port=port,
        controller_port=controller_port,
        log_dir=log_dir,
        more_listeners="".join(f",{name}://{HOST}:{own}" for name, own in extras.listeners.items()),
        more_protocols="".join(f",{name}:{name}" for name in extras.listeners),
    )
    server += "".join(f"{name}={value}\n" for name, value in extras.properties.items())  # the last of a name counts
    layout.server_properties.write_text(server, encoding="ascii")
    layout.log4j2_properties.write_text(_LOG4J2_PROPERTIES.format(log_file=log_file), encoding="ascii")


def unusable_in(path: Path) -> str | None:
    """The first character that Kafka or its log would read as something else: a comma makes two directories."""
    return next((char for char in str(path) if char in ",\\$%" or not char.isprintable()), None)


def _value(path: Path) -> str:
    """As a file of Java properties holds it: that is read as Latin-1, with escapes for all else."""
    units = str(path).encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if code < 0x80 else f"\\u{code:04x}" for code in codes)
