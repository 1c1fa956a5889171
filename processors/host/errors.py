"""Kafka errors by who must act: one table from error to action.

An error has a code, and from the transactional producer at most one of three flags: fatal (this producer is finished),
abortable (the transaction is), retriable (the same call may succeed). The same code means different things in different
places, so each row says what is done about it in a transaction by flag, while consuming, and when the cluster is asked
something.
"""

from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import KafkaError

from rollbook.schemas.errors import EnvironmentFault


class Action(StrEnum):
    """What the host does about an error."""

    STOP_FENCED = "stop_fenced"
    STOP = "stop"
    ABORT = "abort"
    RETRY = "retry"
    UNKNOWN_OUTCOME = "unknown_outcome"
    TELL = "tell"


MEANINGS = {
    Action.STOP_FENCED: "End: a newer process of this name works; exit code 5.",
    Action.STOP: "End with one line that says who must act; exit code 3. Nothing is lost: the next process goes on.",
    Action.ABORT: "Abort the transaction, go back to the committed offsets, read and fold again.",
    Action.RETRY: "Make the same call again, for a bounded time; then as if the outcome were unknown, or stop.",
    Action.UNKNOWN_OUTCOME: "The transaction may have committed: a new producer of the same id settles it, and every "
    "partition is restored.",
    Action.TELL: "Log it: the client library goes on by itself.",
}


class Fenced(EnvironmentFault):
    """A newer process of the same name took over: this one must end, and says so by its own exit code."""

    exit_code = 5


class HostStopped(EnvironmentFault):
    """The host cannot go on; the message names the place and the remedy."""


class PartitionUnusable(HostStopped):
    """One partition cannot be opened, by whomever; the others can."""


@dataclass(frozen=True, slots=True)
class Row:
    """Errors about which the same is done. The actions of a transaction come by flag, the last one is without any."""

    title: str
    acts: str
    fatal: Action
    abortable: Action
    retriable: Action
    plain: Action
    consuming: Action
    asking: Action
    names: tuple[str, ...]


_F, _S, _A, _R, _U, _T = (
    Action.STOP_FENCED,
    Action.STOP,
    Action.ABORT,
    Action.RETRY,
    Action.UNKNOWN_OUTCOME,
    Action.TELL,
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# fmt: off
UNKNOWN = Row(
    "unknown to this version", "the operator: look the error up, and report it as a defect of rollbook",
    #fatal, abortable, retriable, without; consuming, asking
    _S, _S, _S, _S, _S, _S, (),
)
TABLE = (
    Row(
        "fenced", "nobody, where a newer process of this name runs; else give this one another --name",
        _F, _F, _F, _F, _F, _S,
        _names("_FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH FENCED_INSTANCE_ID"),
    ),
    Row(
        # The flag leaves no choice: after a time-out of the broker's an abort is what settles the transaction.
        "time-outs", "the cluster: the processor finds out what happened",
        _S, _A, _U, _U, _T, _R,
        _names("_TIMED_OUT _TIMED_OUT_QUEUE REQUEST_TIMED_OUT _MSG_TIMED_OUT"),
    ),
    Row(
        # Without a flag the library does not promise that the same call may be made again.
        "passing troubles of the cluster", "the cluster's operator, if they do not pass: check that the brokers run, "
        "and that each partition has a leader and its replicas in sync",
        _S, _A, _R, _U, _T, _R,
        _names(
            "_TRANSPORT _ALL_BROKERS_DOWN _DESTROY_BROKER _RESOLVE _FAIL _WAIT_COORD _WAIT_CACHE _RETRY _INTR "
            "_IN_PROGRESS _PREV_IN_PROGRESS _ISR_INSUFF _UNKNOWN_BROKER _QUEUE_FULL LEADER_NOT_AVAILABLE "
            "NOT_LEADER_FOR_PARTITION BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE STALE_CTRL_EPOCH NETWORK_EXCEPTION "
            "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_ENOUGH_REPLICAS "
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED "
            "OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR REASSIGNMENT_IN_PROGRESS FETCH_SESSION_ID_NOT_FOUND "
            "INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH "
            "STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE "
            "UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED REBOOTSTRAP_REQUIRED"
        ),
    ),
    Row(
        # A broker that has just come back does not know its topics for a moment.
        "unknown topics and partitions", "the cluster's operator: compare with `rollbook topics describe`",
        _S, _A, _R, _U, _T, _R,
        _names("UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID"),
    ),
    Row(
        # Whoever has the partition now reads what this transaction held.
        "the group has moved on", "nobody: the instance joins again",
        _S, _A, _A, _A, _T, _R,
        _names(
            "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS MEMBER_ID_REQUIRED _ASSIGNMENT_LOST "
            "_MAX_POLL_EXCEEDED _UNKNOWN_GROUP GROUP_ID_NOT_FOUND FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH "
            "UNRELEASED_INSTANCE_ID"
        ),
    ),
    Row(
        # The library does not do this now: its transaction or its assignment ended before the call, for a reason that
        # comes another way.
        "a call out of its time", "nobody: the transaction is made anew, and what happened is found out",
        _S, _A, _U, _U, _T, _R,
        _names("_STATE"),
    ),
    Row(
        "the transaction is broken", "nobody: the transaction is made anew",
        _S, _A, _R, _U, _S, _S,
        _names(
            "TRANSACTION_ABORTABLE INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING UNKNOWN_PRODUCER_ID "
            "OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER _PURGE_QUEUE _PURGE_INFLIGHT _INCONSISTENT "
            "_GAPLESS_GUARANTEE"
        ),
    ),
    Row(
        # The library tries to connect again by itself; a broker that is going down refuses some handshakes.
        "no connection: TLS or log-in", "the operator: check user, password and certificates of the processor",
        _S, _S, _R, _S, _T, _R,
        _names(
            "_SSL _AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"
        ),
    ),
    Row(
        # Also where the flag says abort: the same would be refused again and again.
        "not allowed", "the cluster's operator: give the processor's user the rights that `rollbook topics acl` lists",
        _S, _S, _S, _S, _S, _S,
        _names(
            "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED "
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED DELEGATION_TOKEN_AUTH_DISABLED "
            "DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED "
            "DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE "
            "PRINCIPAL_DESERIALIZATION_FAILURE UNACCEPTABLE_CREDENTIAL"
        ),
    ),
    Row(
        "the cluster refuses what is written", "the cluster's operator: compare sizes and settings with `rollbook "
        "topics describe`; the same records would be refused for ever",
        _S, _S, _S, _S, _S, _S,
        _names(
            "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_MSG_SIZE INVALID_RECORD _INVALID_DIFFERENT_RECORD "
            "INVALID_TIMESTAMP UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_COMPRESSION_TYPE POLICY_VIOLATION "
            "INVALID_REQUIRED_ACKS"
        ),
    ),
    Row(
        "the log is not what it was", "the cluster's operator: records were deleted or truncated; restore the topic, "
        "or start a new topic prefix",
        _S, _S, _S, _S, _S, _S,
        _names("_AUTO_OFFSET_RESET OFFSET_OUT_OF_RANGE _LOG_TRUNCATION _NO_OFFSET"),
    ),
    Row(
        "bytes that are damaged", "the cluster's operator: check the brokers' disks and the network",
        _S, _A, _R, _S, _S, _S,
        _names("INVALID_MSG _BAD_MSG _BAD_COMPRESSION _UNDERFLOW"),
    ),
    Row(
        "settings that the cluster refuses", "the operator: change the setting that the message names, or the broker's",
        _S, _S, _S, _S, _S, _S,
        _names(
            "INVALID_TRANSACTION_TIMEOUT INVALID_SESSION_TIMEOUT INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID "
            "GROUP_MAX_SIZE_REACHED UNSUPPORTED_ASSIGNOR UNSUPPORTED_VERSION _UNSUPPORTED_FEATURE _NOT_CONFIGURED "
            "INVALID_CONFIG OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE TOPIC_EXCEPTION"
        ),
    ),
    Row(
        "the machine", "the operator: look at its memory, file descriptors and disk",
        _S, _S, _S, _S, _S, _S,
        _names("_CRIT_SYS_RESOURCE _FS"),
    ),
    Row(
        "no failure", "nobody",
        _S, _S, _S, _S, _T, _S,
        _names("NO_ERROR _PARTITION_EOF _NOOP _NODE_UPDATE _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _PARTIAL"),
    ),
    Row(
        # The library names the error that it could not live with only once, when it meets it.
        "a client beyond repair", "start the processor again, unless a newer process of this name runs: the log says "
        "what happened before",
        _S, _S, _S, _S, _S, _S,
        _names("_FATAL"),
    ),
    Row(
        # "Unknown broker error" is how a broker tells of a defect of its own.
        "what must not happen", "report it as a defect of rollbook, with the broker's log of that moment",
        _S, _S, _S, _S, _S, _S,
        _names(
            "UNKNOWN _CONFLICT _INVALID_ARG _NOT_IMPLEMENTED _UNKNOWN_PROTOCOL _OUTDATED _DESTROY "
            "_EXISTING_SUBSCRIPTION _KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION "
            "_VALUE_DESERIALIZATION _READ_ONLY _NOENT _INVALID_TYPE _APPLICATION INVALID_REQUEST"
        ),
    ),
    Row(
        "of calls that the processor does not make", "report it as a defect of rollbook",
        _S, _S, _S, _S, _S, _S,
        _names(
            "TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT "
            "LOG_DIR_NOT_FOUND NON_EMPTY_GROUP TOPIC_DELETION_DISABLED ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS "
            "GROUP_SUBSCRIBED_TO_TOPIC RESOURCE_NOT_FOUND DUPLICATE_RESOURCE INCONSISTENT_VOTER_SET "
            "INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE "
            "UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_REGISTRATION "
            "INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH SHARE_SESSION_LIMIT_REACHED "
            "FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION "
            "STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED"
        ),
    ),
)
# fmt: on
_BY_NAME = {name: row for row in TABLE for name in row.names}
_FENCED = TABLE[0]


def row_for(error: KafkaError) -> Row:
    """The row of an error. By name, since older versions of the library lack some of the codes."""
    name = error.name()
    if name == "_FATAL" and "fenced" in error.str():  # the cause of a fatal error is in its text only
        return _FENCED
    return _BY_NAME.get(name, UNKNOWN)


def action_for(error: KafkaError) -> Action:
    """What to do about an error of a call of the transaction."""
    row = row_for(error)
    if error.fatal():
        return row.fatal
    if error.txn_requires_abort():
        return row.abortable
    return row.retriable if error.retriable() else row.plain


def consuming(error: KafkaError) -> Action:
    """What to do about an error that the consumer delivers in place of a record."""
    row = row_for(error)
    return row.fatal if error.fatal() else row.consuming


def passes(error: KafkaError) -> bool:
    """Whether a question to the cluster is worth asking again: brokers move and come back."""
    return not error.fatal() and row_for(error).asking is Action.RETRY


def remedy(error: KafkaError) -> str:
    """Who acts, for the end of a message."""
    return row_for(error).acts
