"""The page's files, read into memory once: a path is looked up among them, and never in the file system."""

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

from rollbook.processors.dashboard.web.answering import accepts_gzip, answer, zipped

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
_PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent. Browsers ask each time whether it is still the same: a newer rollbook has newer files."""

    body: bytes
    in_gzip: bytes | None
    content_type: str
    tag: str

    def answer(self, request: web.Request) -> web.Response:
        headers = {"ETag": self.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if self.tag in [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        response = answer(self.body, self.content_type, self.in_gzip if accepts_gzip(request) else None)
        response.headers.update(headers)
        return response


def load(folder: str) -> Mapping[str, Asset]:
    """The files of a folder of this package and of those below it, by their path in it."""
    root = files("rollbook.processors.dashboard").joinpath(folder)
    found: dict[str, Asset] = {}
    if root.is_dir():
        _gather(root, "", found)
    return found


def _gather(folder: Traversable, below: str, found: dict[str, Asset]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            _gather(entry, f"{below}{entry.name}/", found)
        else:
            found[f"{below}{entry.name}"] = _asset(entry)


def _asset(entry: Traversable) -> Asset:
    body = entry.read_bytes()
    ending = f".{entry.name.rpartition('.')[2]}"
    content_type = _TYPES.get(ending) or mimetypes.guess_type(entry.name)[0] or _PLAIN
    is_text = content_type.startswith(("text/", "application/json", "image/svg"))
    return Asset(body, zipped(body) if is_text else None, content_type, f'"{hashlib.sha256(body).hexdigest()[:24]}"')
