"""The page of the environment variables. A variable that the code names and this page does not is an error."""

import inspect
import re
from collections.abc import Iterator

from rollbook.infra import command
from rollbook.infra import settings as leaf
from rollbook.infra.reference.markdown import code, fenced, page, table

_VARIABLE = re.compile(r"\bROLLBOOK_[A-Z_]+\b")
_DEFAULTS = {
    leaf.SERVERS_VARIABLE: code(leaf.DEFAULT_BOOTSTRAP_SERVERS),
    leaf.PREFIX_VARIABLE: code(leaf.DEFAULT_TOPIC_PREFIX),
    leaf.KAFKA_VARIABLE: "",
    leaf.FILE_VARIABLE: "",
    leaf.CAPTURE_VARIABLE: "off",
    leaf.CAPTURE_DIR_VARIABLE: "",
    leaf.CAPTURE_UPDATES_VARIABLE: "all",
    leaf.CAPTURE_ROLLOUTS_VARIABLE: "all",
    leaf.TOKEN_VARIABLE: "none",
    "ROLLBOOK_CACHE_DIR": "the platform's cache folder",
    "ROLLBOOK_DATA_DIR": "the platform's data folder",
    "ROLLBOOK_TRACEBACK": "",
}


def _also(ending: str) -> str:
    return f" `RELAX_REPLAY_CAPTURE{ending}` counts where it is not set."


_MEANINGS = {
    leaf.SERVERS_VARIABLE: "The Kafka cluster: `HOST:PORT`, several with commas. Set but empty is an error.",
    leaf.PREFIX_VARIABLE: "What every topic's name begins with: ASCII letters, digits, `.`, `_` and `-`, at most "
    f"{leaf.LONGEST_PREFIX} characters. Set but empty is an error.",
    leaf.KAFKA_VARIABLE: "With a name behind it, any setting of librdkafka, see below.",
    leaf.FILE_VARIABLE: "A file of such settings, for all that is not to be seen in the environment of a process.",
    leaf.CAPTURE_VARIABLE: f"`1` makes a trainer with the capture of bundles in it record; `0` is off.{_also('')}",
    leaf.CAPTURE_DIR_VARIABLE: f"The folder for its bundles, on the disk of all ranks; needed.{_also('_DIR')}",
    leaf.CAPTURE_UPDATES_VARIABLE: "Which optimizer steps it records: `7` for all steps of update 7 (its rollout id), "
    f"`7:0` for one (`rollout:step`), `10-19` for a range; several with commas, or `none`.{_also('_STEPS')}",
    leaf.CAPTURE_ROLLOUTS_VARIABLE: "Which rollouts it records (rewards and advantages, before any step): `7`, "
    f"`10-19`, several with commas, or `none`.{_also('_ROLLOUTS')}",
    leaf.TOKEN_VARIABLE: "The token that whoever asks `rollbook dashboard` must have; `--token-file` counts more.",
    "ROLLBOOK_CACHE_DIR": str(leaf.cache_dir.__doc__),
    "ROLLBOOK_DATA_DIR": str(leaf.data_dir.__doc__),
    "ROLLBOOK_TRACEBACK": "`1` shows where in the code an error came from, for a report of a defect.",
}


def settings() -> str:
    """Every variable with its default."""
    return page(
        "Settings",
        "From `infra/settings.py`, the one place that reads the environment (the command itself looks at "
        "`ROLLBOOK_TRACEBACK`). What belongs to a run is no setting of a machine: it is in its `RunConfigured`, see "
        "[records](records.md).",
        table(("variable", "default", "meaning"), _rows()),
        "## Settings of librdkafka",
        "Every Kafka client of rollbook takes them: those of producers, processor, replay and `infra`. "
        f"{code('sasl.username')} is {code(leaf.variable_for('sasl.username'))}, dots as underscores; in the file of "
        f"{code(leaf.FILE_VARIABLE)} a line is `NAME=VALUE` with the name as librdkafka writes it, and `#` begins a "
        "comment. A variable counts more than a line. They are checked before anything is connected; the values of "
        "secrets appear in no message. Which user may do what: [acls](acls.md).",
        fenced(
            "properties",
            (
                "security.protocol=SASL_SSL",
                "sasl.mechanism=SCRAM-SHA-512",
                "sasl.username=trainer",
                "sasl.password=...",
                "ssl.ca.location=/etc/ssl/certs/kafka-ca.pem",
            ),
        ),
        "These are refused, since something would break:",
        table(("setting", "because"), ((code(name), why) for name, why in leaf.RESERVED.items())),
    )


def _rows() -> Iterator[tuple[str, str, str]]:
    named = {name for module in (leaf, command) for name in _VARIABLE.findall(inspect.getsource(module))}
    if named != _MEANINGS.keys():
        raise LookupError(f"the page of the settings and the code differ in {sorted(named ^ _MEANINGS.keys())}")
    for name, meaning in _MEANINGS.items():
        shown = f"{name}<SETTING>" if name == leaf.KAFKA_VARIABLE else name
        yield code(shown), _DEFAULTS[name], meaning.replace(f" ({code(name)})", "")
