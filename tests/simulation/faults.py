"""What goes wrong, and how often: each seed draws its own mixture, so that rare faults meet and calm runs exist too."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum

LOST_MARKERS = "transactions whose markers were lost"


class Fate(StrEnum):
    """What becomes of a request."""

    FINE = "fine"
    LOST = "never arrived"
    REPLY_LOST = "landed, reply lost"
    LATE = "arrives late"
    RETRIABLE = "retriable"
    ABORTABLE = "abortable"


@dataclass(frozen=True, slots=True)
class Profile:
    """Chances, each of one call or, of what befalls processes and the broker, of one second."""

    lost: float = 0.0
    reply_lost: float = 0.0
    late: float = 0.0
    stuck: float = 0.0
    """Of the time-outs: how many never return by themselves."""
    retriable: float = 0.0
    abortable: float = 0.0
    again: float = 0.0
    """A message is delivered to the application twice."""
    full: float = 0.0
    crash: float = 0.0
    crash_in_call: float = 0.0
    pause: float = 0.0
    pause_in_call: float = 0.0
    """Stopped in the middle of a transaction, for longer than the session, not than the transaction's time-out."""
    crowd: float = 0.0
    """One more instance comes, or one goes in peace: a rebalance."""
    forget: float = 0.0
    """The group's offsets expire."""
    clone: float = 0.0
    outage: float = 0.0
    jump: float = 0.0
    slow_markers: float = 0.0
    lost_markers: float = 0.0
    """Of decided transactions: a partition without a leader is taken for deleted, and gets no marker."""
    slow: float = 0.0
    """Work takes time: a batch ends by its clock, a transaction can be too long."""


_MOST = Profile(
    lost=0.02,
    reply_lost=0.04,
    late=0.04,
    stuck=0.4,
    retriable=0.05,
    abortable=0.05,
    again=0.05,
    full=0.02,
    crash=0.15,
    crash_in_call=0.01,
    pause=0.15,
    pause_in_call=0.05,
    crowd=0.3,
    forget=0.02,
    clone=0.05,
    outage=0.03,
    jump=0.03,
    slow_markers=0.3,
    lost_markers=0.1,
    slow=0.05,
)
CALM = Profile()


FORGETFUL = Profile(lost_markers=0.3, abortable=0.1, crash=0.1, pause_in_call=0.03, crowd=0.2)
"""A broker that loses markers, and not much else: lost ones do harm where several meet in a row."""


def draw(source: random.Random) -> Profile:
    """A profile: every fault off, rare or frequent; now and then that of a forgetful broker."""
    if source.random() < 0.15:
        return FORGETFUL
    return Profile(
        **{found.name: getattr(_MOST, found.name) * source.choice((0.0, 0.0, 0.3, 1.0)) for found in fields(Profile)}
    )


class Faults:
    """Draws fates, and counts what it did."""

    def __init__(self, source: random.Random, profile: Profile) -> None:
        self._random = source
        self.profile = profile
        self.counts: Counter[str] = Counter()

    def strikes(self, name: str, chance: float) -> bool:
        """Whether a fault of this chance happens now."""
        if chance > 0 and self._random.random() < chance:
            self.counts[name] += 1
            return True
        return False

    def fate_of_question(self) -> Fate:
        """What becomes of a request that changes nothing."""
        profile = self.profile
        return self._draw("question", {Fate.LOST: profile.lost, Fate.RETRIABLE: profile.retriable})

    def fate(self, what: str) -> Fate:
        """What becomes of a request of a transaction. An abort needs no second one."""
        profile = self.profile
        chances = {
            Fate.LOST: profile.lost,
            Fate.REPLY_LOST: profile.reply_lost,
            Fate.LATE: profile.late,
            Fate.RETRIABLE: profile.retriable,
        }
        if what != "abort_transaction":
            chances[Fate.ABORTABLE] = profile.abortable
        return self._draw(what, chances)

    def _draw(self, what: str, chances: dict[Fate, float]) -> Fate:
        rolled = self._random.random()
        for fate, chance in chances.items():
            rolled -= chance
            if rolled < 0:
                self.counts[f"{what}: {fate}"] += 1
                return fate
        return Fate.FINE

    def pause(self) -> float:
        """How long the broker takes to write a marker."""
        slow = self._random.random() < self.profile.slow_markers
        return self._random.random() * (1.0 if slow else 0.01)

    def lost_markers(self, commit: bool) -> Callable[[tuple[str, int] | None], bool]:
        """Which places of a decided transaction get no marker; None is the group. All, the group, or of an abort any:
        where a commit reached one topic and not another, nobody can tell it from an abort, and a person must look."""
        if not self.strikes(LOST_MARKERS, self.profile.lost_markers):
            return lambda place: False
        match self._random.choice(("all", "group") if commit else ("all", "group", "some")):
            case "all":
                return lambda place: True
            case "group":
                return lambda place: place is None
            case _:
                return lambda place: self._random.random() < 0.5
