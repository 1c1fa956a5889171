"""Names of environment variables that are nearly ours: what was meant, and what is somebody else's after all. Pure."""

import re
from collections.abc import Collection

_NEARLY = 0.8
"""A letter too many or too few of a dozen; another word in place of one of ours is another name."""

# Kubernetes sets these for each Service of a namespace, in each of its pods: of `rollbook-kafka` ROLLBOOK_KAFKA_PORT.
_OF_KUBERNETES = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?$"
)


def is_of_kubernetes(name: str) -> bool:
    """Whether a name is of a form that Kubernetes makes of a Service's name."""
    return _OF_KUBERNETES.search(name) is not None


def meant_by(name: str, known: Collection[str], setting: str) -> str:
    """Which of the known names was meant, or which of the settings that begin with `setting`; empty where none is near.

    Compared is what comes after the first word, which all have.
    """
    from difflib import get_close_matches  # for names that are wrong alone: every client imports this module

    ours, _, rest = name.partition("_")
    first, _, tail = rest.partition("_")
    if tail and get_close_matches(first, (setting.strip("_").rpartition("_")[2],), cutoff=_NEARLY):
        return f"{setting}{tail}"
    nearest = get_close_matches(rest, [one.partition("_")[2] for one in known], n=1, cutoff=_NEARLY)
    return f"{ours}_{nearest[0]}" if nearest else ""
