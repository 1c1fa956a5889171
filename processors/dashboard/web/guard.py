"""What every request passes before a page sees it, and every error on its way out."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from rollbook.processors.dashboard.web.access import Access, is_from_elsewhere
from rollbook.processors.dashboard.web.answering import Refused, problem, put_headers, shown

logger = logging.getLogger("rollbook.dashboard")

HEALTH = "/healthz"
LOGIN = "/login"
LOGIN_STYLE = "/login.css"
LOGIN_SCRIPT = "/login.js"
PAGE = "/"
OPEN = (HEALTH, LOGIN, LOGIN_STYLE, LOGIN_SCRIPT)
"""What anybody may see: it says nothing of any run."""
FORM_S = 5.0
ANSWER_S = 30.0
"""Who takes longer to take an answer is hung up on."""
_TICKET_S = 30 * 24 * 3600
_WRONG_TOKEN_S = 0.5
"""Whoever gives a wrong one has his answer so late, wherever he gives it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """The rules of `Access`, applied; made for one dashboard."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def middleware(self) -> Middleware:
        """For aiohttp, which wants a function with its mark."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await self._answer(request, handler)
            if not response.prepared:
                await _send(request, response)
            return response

        return guarded

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            refusal = await self._refusal(request)
            return await handler(request) if refusal is None else refusal
        except Refused as refused:
            return problem(refused.status, str(refused), refused.headers)
        except web.HTTPException as error:
            return _of_library(request, error)
        except ConnectionError:
            raise
        except TimeoutError:
            return problem(HTTPStatus.REQUEST_TIMEOUT, f"not there within {FORM_S:.0f} s: send it at once")
        except Exception as defect:
            logger.exception("a page failed")
            return problem(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"a defect of rollbook ({type(defect).__name__}): see the log of the dashboard",
            )

    async def _refusal(self, request: web.Request) -> web.StreamResponse | None:
        """Why the request is not answered, or where the browser is to go first; None: it may pass."""
        access, path = self._access, request.path
        if path == HEALTH:
            return None
        host = request.headers.get("Host")
        if not (access.is_ours(host) and access.is_ours(request.host)):  # the second may be that of a whole URL
            return problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"{shown(host or '')} is no name of this dashboard: ask for its address, or start it with "
                "--public-name NAME",
            )
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and not _is_navigation(request):
            return problem(HTTPStatus.FORBIDDEN, "asked for by a page of another site: open the dashboard itself")
        if path in OPEN:
            return None
        if access.token is not None and path == PAGE and "token" in request.query:
            return await self._exchanged(request)
        if access.is_known(request.headers.get("Authorization"), request.cookies.get(access.cookie)):
            return None
        if "Authorization" in request.headers or access.cookie in request.cookies:
            await asyncio.sleep(_WRONG_TOKEN_S)
        if path == PAGE:
            return _redirect("login")
        return problem(
            HTTPStatus.UNAUTHORIZED,
            "no token, or a wrong one: send Authorization: Bearer TOKEN, or sign in at /login",
            {"WWW-Authenticate": 'Bearer realm="rollbook dashboard"'},
        )

    async def _exchanged(self, request: web.Request) -> web.StreamResponse:
        """A link with the token in it: the address that stays in the browser is one without."""
        if self._access.is_token(request.query["token"]):
            return self.signed_in(request)
        await asyncio.sleep(_WRONG_TOKEN_S)
        return _redirect("login")

    def signed_in(self, request: web.Request) -> web.StreamResponse:
        """To the page, with the cookie."""
        response = _redirect("./")
        response.set_cookie(
            self._access.cookie,
            self._access.ticket,
            max_age=_TICKET_S,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("X-Forwarded-Proto", "").lower().partition(",")[0].strip() == "https",
        )
        return response

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """The form's answer; the token is compared only where a page of ours sent it."""
        if is_from_elsewhere(request.headers.get("Origin"), request.headers.get("Host")):
            raise Refused(HTTPStatus.FORBIDDEN, "sent by a page of another site: sign in at /login of the dashboard")
        try:
            async with asyncio.timeout(FORM_S):
                form = await request.post()
        except (ValueError, LookupError, RuntimeError, AssertionError):  # a library's words for what is no form
            raise Refused(HTTPStatus.BAD_REQUEST, "a form that does not read: sign in at /login") from None
        given = form.get("token", "")
        if self._access.token is None or (isinstance(given, str) and self._access.is_token(given.strip())):
            return self.signed_in(request)
        await asyncio.sleep(_WRONG_TOKEN_S)
        return _redirect("login?wrong")


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    """The whole answer, in bounded time: who reads slowly keeps a connection and memory."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


async def put_all_headers(_: web.Request, response: web.StreamResponse) -> None:
    """For aiohttp's signal, which knows answers that no middleware has seen, too."""
    put_headers(response)


def _is_navigation(request: web.Request) -> bool:
    return request.headers.get("Sec-Fetch-Mode") == "navigate" and not request.path.startswith("/api/")


def _redirect(to: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": to})


def _of_library(request: web.Request, error: web.HTTPException) -> web.Response:
    """What aiohttp refuses, in our words."""
    path = shown(urlsplit(request.path).path)
    if isinstance(error, web.HTTPNotFound):
        return problem(error.status, f"there is no {path} here: /api/openapi.json says what there is")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return problem(error.status, f"{path} does not take {shown(request.method)}, but {allowed}", {"Allow": allowed})
    return problem(error.status, f"{error.reason}: see /api/openapi.json for what can be asked")
