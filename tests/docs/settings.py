"""The setting of each page: what it finds, and what its names stand for."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollbook.infra.settings import Settings, Topic
from rollbook.tests import recount


class Finds(StrEnum):
    """What lies in the topics when a page begins."""

    RUNS = "runs"
    """The recorded runs, shared with other pages."""
    NOTHING = "nothing"
    """Empty topics of its own: it starts a processor, and publishes."""


class Ended(BaseException):
    """The end of a loop that a page goes round for ever."""


@dataclass(frozen=True, slots=True)
class Setting:
    """`names`: makes what the Python of a page takes from the reader's own code; `after`: looks at the topics when all
    of the page was run."""

    finds: Finds = Finds.RUNS
    names: Callable[[], dict[str, Any]] = dict
    after: Callable[[Settings], None] = lambda _: None


def _generation() -> dict[str, Any]:
    def generate_a_group() -> None:
        raise Ended

    return {"generate_a_group": generate_a_group}


def _trained(settings: Settings) -> None:
    """Counted by what imports nothing of rollbook."""
    topics = (settings.topic(topic) for topic in (Topic.LIFECYCLE, Topic.DECISIONS))
    lifecycle, decisions = (recount.read_topic(settings.bootstrap_servers, topic) for topic in topics)
    figures = recount.figures("readme", lifecycle, decisions, recount.Codec())
    assert figures["trajectories"] == {"consumed": 4}
    assert figures["updates"] == {"committed": 1}


SETTINGS = {
    "README.md": Setting(Finds.NOTHING, after=_trained),
    "get-started.md": Setting(Finds.NOTHING),
    "guide-publish.md": Setting(Finds.NOTHING),
    "connect-your-trainer.md": Setting(Finds.NOTHING),
    "freshness.md": Setting(names=_generation),
}


def setting_of(page: str) -> Setting:
    return SETTINGS.get(page, Setting())
