"""How answers are put: JSON of the typed answers, problems, and what every answer's head says."""

import gzip
from collections.abc import Mapping
from http import HTTPStatus

from aiohttp import web

from rollbook.processors.dashboard.answers import Answer, Problem

JSON = "application/json"
_GZIP_FROM = 1_024
_GZIP_LEVEL = 4
_LONGEST_PROBLEM = 600

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def put_headers(response: web.StreamResponse) -> None:
    """What every answer says, errors and streams included, unless it says something else itself."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "rollbook"


def encoded(answer: Answer) -> bytes:
    """An answer as JSON."""
    return answer.model_dump_json().encode()


def accepts_gzip(request: web.BaseRequest) -> bool:
    """Whether who asks takes gzip, by the header Accept-Encoding."""
    for choice in request.headers.get("Accept-Encoding", "").lower().split(","):
        coding, _, quality = choice.partition(";")
        if coding.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def zipped(body: bytes) -> bytes | None:
    """The body for who takes gzip; None where it is too short for that."""
    return None if len(body) < _GZIP_FROM else gzip.compress(body, _GZIP_LEVEL, mtime=0)


def answer(body: bytes, content_type: str, in_gzip: bytes | None, status: int = HTTPStatus.OK) -> web.Response:
    """A whole answer; `in_gzip` is the body as it is sent, if that is given."""
    response = web.Response(body=body if in_gzip is None else in_gzip, status=status)
    response.headers["Content-Type"] = content_type
    response.headers["Vary"] = "Accept-Encoding"
    if in_gzip is not None:
        response.headers["Content-Encoding"] = "gzip"
    return response


def problem(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer that is an error: what was wrong, and what to do."""
    response = web.Response(body=encoded(Problem(problem=text[:_LONGEST_PROBLEM])), status=status, headers=headers)
    response.headers["Content-Type"] = JSON
    return response


class Refused(Exception):
    """Ends the handling of a request with a problem."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


def shown(text: str) -> str:
    """What was asked for, in a message: as printable ASCII, and not too long."""
    return ascii(text) if len(text) <= 100 else f"{text[:100]!a}..."
