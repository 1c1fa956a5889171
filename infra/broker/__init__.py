"""Apache Kafka from packages: verified jars, the JRE of a wheel, one combined KRaft node on the loopback interface.

`EmbeddedBroker` is a node that dies with its process; `rollbook broker start` detaches one until `broker stop`.
"""

from rollbook.infra.broker.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
