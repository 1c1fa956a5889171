"""The table of what can be asked: pages are served by it, and its description (OpenAPI) follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from rollbook.processors.dashboard.answers import Decisions, Frame, Now, Runs, Series, Size, Status, Trajectory
from rollbook.processors.dashboard.fold.recent import MOST

EVENTS = "text/event-stream"
TEXT = "text/plain"
LONGEST_ID = 256


class Where(StrEnum):
    """Where a parameter stands."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, with its JSON schema."""

    name: str
    where: Where
    about: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One path. `answer` none: text that is no JSON. `problems`: statuses of `Problem` besides those that all have."""

    path: str
    name: str
    summary: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    answer: type[BaseModel] | None = None
    media_type: str = "application/json"
    problems: tuple[HTTPStatus, ...] = ()
    negative: bool = False
    """Whether it says no with 503 and its own text."""
    is_open: bool = False
    """Whether it needs no token."""


_NAME = {"type": "string", "minLength": 1, "maxLength": LONGEST_ID}
_SIZES = {"type": "string", "enum": [size.value for size in Size], "default": Size.TEN_SECONDS.value}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MOST, "default": 50}

RUN = Parameter("run", Where.PATH, "The run, percent-encoded (also the slashes in it).", _NAME, required=True)
TRAJECTORY = Parameter("trajectory", Where.PATH, "The trajectory, percent-encoded.", _NAME, required=True)
TRAJECTORY_ID = Parameter("id", Where.QUERY, "The trajectory.", _NAME, required=True)
RUN_ASKED = Parameter("run", Where.QUERY, "The run to be told of; none: the list of runs alone.", _NAME)
SIZE = Parameter("size", Where.QUERY, "Length of the windows.", _SIZES)
SINCE = Parameter("since", Where.QUERY, "Only windows that changed after this revision of an earlier answer.", _NUMBER)
LIMIT = Parameter("limit", Where.QUERY, "At most so many.", _LIMIT)
LAST_EVENT = Parameter(
    "Last-Event-ID",
    Where.HEADER,
    "Id of the last event that was taken, which browsers send when they connect again: what changed since is told.",
    {"type": "string", "maxLength": 64},
)

_UNKNOWN, _BAD = HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST
_BUSY = HTTPStatus.SERVICE_UNAVAILABLE

ROUTES = (
    Route("/api/status", "status", "The dashboard itself", "Where it stands with the log.", answer=Status),
    Route("/api/runs", "runs", "All runs", "The one with the newest decision first.", answer=Runs),
    Route(
        "/api/runs/{run}",
        "run",
        "A run at this moment",
        "Its newest snapshot, counts so far, updates, workers, policies and newest decisions.",
        (RUN,),
        Now,
        problems=(_UNKNOWN,),
    ),
    Route(
        "/api/runs/{run}/series",
        "series",
        "What happened over time",
        "Windows of event time.",
        (RUN, SIZE, SINCE),
        Series,
        problems=(_UNKNOWN, _BAD),
    ),
    Route(
        "/api/runs/{run}/decisions",
        "decisions",
        "The newest decisions",
        "Newest first.",
        (RUN, LIMIT),
        Decisions,
        problems=(_UNKNOWN, _BAD),
    ),
    Route(
        "/api/runs/{run}/trajectories/{trajectory}",
        "trajectory",
        "A trajectory's history",
        "What was decided about it, read from the decisions topic.",
        (RUN, TRAJECTORY),
        Trajectory,
        problems=(_UNKNOWN, _BUSY),
    ),
    Route(
        "/api/runs/{run}/trajectories",
        "trajectory_by_id",
        "A trajectory's history, by parameter",
        "The same for any id: URLs cannot hold the ids `.` and `..` in their path.",
        (RUN, TRAJECTORY_ID),
        Trajectory,
        problems=(_UNKNOWN, _BAD, _BUSY),
    ),
    Route(
        "/api/stream",
        "stream",
        "Everything, as it changes",
        "Server-sent events, each a `Frame`: at once, then at most one a second, within a second of a change, and one "
        "every five seconds where nothing changes. The first has all windows, each later one those that changed. Where "
        "`status.instance` changes, what was told before is void.",
        (RUN_ASKED, SIZE, LAST_EVENT),
        Frame,
        media_type=EVENTS,
        problems=(_BAD, _BUSY),
    ),
    Route(
        "/metrics",
        "metrics",
        "Metrics",
        "In Prometheus' text format.",
        media_type=TEXT,
    ),
    Route(
        "/healthz",
        "healthz",
        "Whether it goes round",
        "200 and `ok`, or 503 and why not.",
        media_type=TEXT,
        negative=True,
        is_open=True,
    ),
    Route(
        "/readyz",
        "readyz",
        "Whether what it shows is up to date",
        "200 and `ok`, or 503 and why not.",
        media_type=TEXT,
        negative=True,
    ),
)
DESCRIPTION = "/api/openapi.json"
