"""Who may ask the dashboard: the rules alone, and as a process applies them. No broker is needed for any of it."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from rollbook.infra.settings import Settings
from rollbook.processors.address import Address
from rollbook.processors.dashboard.web.access import Access, is_from_elsewhere
from rollbook.processors.dashboard.web.answering import CONTENT_POLICY
from rollbook.processors.dashboard.web.guard import FORM_S
from rollbook.processors.dashboard.web.server import MOST_CONNECTIONS
from rollbook.schemas.errors import BadInput
from rollbook.tests.processors.dashboard.serving import Served, command, dashboard, end, environment

NOBODY = Settings(bootstrap_servers="127.0.0.1:1")
TOKEN = "correct-horse-battery-staple"
LOOPBACK = Address("127.0.0.1", 9401)
EVERYWHERE = Address("0.0.0.0", 9401)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Without a token, on loopback."""
    with dashboard(NOBODY) as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    """With a token, on all addresses."""
    with dashboard(NOBODY, listen="0.0.0.0:0", ROLLBOOK_DASHBOARD_TOKEN=TOKEN) as running:
        yield running


# The rules


@pytest.mark.parametrize(
    "text", ["", "9401", "localhost", "127.0.0.1:", "127.0.0.1:99999", "::1:9401", "[::1]", "a b:1\n", "127.0.0.1:٣"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--listen"):
        Address.parse(text, "--listen", 9401)


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:9401", True),
        ("127.9.9.9:1", True),
        ("[::1]:9401", True),
        ("localhost:0", True),
        ("0.0.0.0:9401", False),
        ("[::]:9401", False),
        ("10.0.0.7:9401", False),
        ("localhost.example.org:9401", False),
    ],
)
def test_only_loopback_goes_without_a_token(text: str, loopback: bool) -> None:
    address = Address.parse(text, "--listen", 9401)
    assert address.is_loopback is loopback
    assert str(address) == text
    if loopback:
        Access(address, None)
    else:
        with pytest.raises(BadInput, match="--token-file"):
            Access(address, None)
    Access(address, TOKEN)


@pytest.mark.parametrize("token", ["", "short", "x" * 513, "with a space in it", "tab\tin-the-middle", "ü" * 20])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(BadInput, match="token"):
        Access(LOOPBACK, token)


@pytest.mark.parametrize("name", ["", "http://rollbook.example.org", "example.org:80", "-", "a/b", "*.example.org"])
def test_a_public_name_is_a_host_s_name(name: str) -> None:
    with pytest.raises(BadInput, match="--public-name"):
        Access(LOOPBACK, None, (name,))


HOSTS = [
    ("127.0.0.1:9401", True, True),
    ("127.0.0.1", True, True),
    ("localhost:8080", True, True),
    ("LocalHost", True, True),
    ("localhost.", True, True),
    ("[::1]:9401", True, True),
    ("rollbook.example.org", True, True),
    ("Rollbook.Example.Org:443", True, True),
    ("192.168.1.7:9401", False, True),
    ("[2001:db8::7]:9401", False, True),
    ("attacker.example", False, False),
    ("attacker.example:9401", False, False),
    ("127.0.0.1.attacker.example", False, False),
    ("localhost.attacker.example:9401", False, False),
    ("127.0.0.1:9401:1", False, False),
    ("127.0.0.1@attacker.example", False, False),
    ("127.0.0.1 attacker.example", False, False),
    ("", False, False),
    (None, False, False),
]


@pytest.mark.parametrize(("host", "on_loopback", "everywhere"), HOSTS)
def test_only_names_that_are_ours_are_answered(host: str | None, on_loopback: bool, everywhere: bool) -> None:
    names = ("rollbook.example.org",)
    assert Access(LOOPBACK, None, names).is_ours(host) is on_loopback
    assert Access(EVERYWHERE, TOKEN, names).is_ours(host) is everywhere


def test_the_address_itself_is_a_name() -> None:
    access = Access(Address("node-7.cluster", 9401), TOKEN)
    assert access.is_ours("node-7.cluster:9401")
    assert not access.is_ours("10.0.0.7:9401")


def test_a_token_or_its_cookie_lets_in_and_nothing_else() -> None:
    access = Access(EVERYWHERE, TOKEN)
    assert access.is_known(f"Bearer {TOKEN}", None)
    assert access.is_known(f"bearer  {TOKEN} ", None)
    assert access.is_known(None, access.ticket)
    assert not access.is_known(None, None)
    assert not access.is_known("Bearer", None)
    assert not access.is_known(f"Bearer {TOKEN}x", None)
    assert not access.is_known(f"Basic {TOKEN}", None)
    assert not access.is_known(f"Bearer {access.ticket}", None), "a stolen cookie is no token"
    assert not access.is_known(None, TOKEN), "and the token no cookie"
    assert not access.is_known("Bearer ü\udcff", "ü\udcff")
    assert access.ticket != Access(EVERYWHERE, TOKEN + "x").ticket
    assert Access(LOOPBACK, None).is_known(None, None)


def test_a_form_is_taken_from_our_own_page_alone() -> None:
    assert not is_from_elsewhere("http://127.0.0.1:9401", "127.0.0.1:9401")
    assert not is_from_elsewhere("https://Rollbook.example.org", "rollbook.example.org")
    for origin in (None, "null", "http://127.0.0.1:9402", "http://attacker.example", "127.0.0.1:9401", ""):
        assert is_from_elsewhere(origin, "127.0.0.1:9401"), origin


# The process

EVERY_ANSWER = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "server": "rollbook",
}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/api/status", 200),
        ("HEAD", "/api/status", 200),
        ("GET", "/api/openapi.json", 200),
        ("GET", "/metrics", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 503),
        ("GET", "/login", 200),
        ("GET", "/login.css", 200),
        ("GET", "/login.js", 200),
        ("HEAD", "/api/stream", 200),
        ("GET", "/api/runs/none", 404),
        ("GET", "/api/nothing", 404),
        ("GET", "/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/static/../cli.py", 404),
        ("GET", "/cli.py", 404),
        ("GET", "//evil.example/?token=x", 404),
        ("GET", "/api/runs?page=2", 400),
        ("GET", "/api/stream?size=2s", 400),
        ("GET", "/api/stream?size=1s&size=1m", 400),
        ("GET", f"/api/runs/{'x' * 257}", 404),
        ("GET", f"/{'x' * 10_000}", 400),
        ("POST", "/api/status", 405),
        ("DELETE", "/", 405),
        ("OPTIONS", "/api/runs", 405),
        ("PUT", "/api/runs", 405),
    ],
)
def test_every_answer_has_its_headers_and_errors_say_what_to_do(
    served: Served, method: str, path: str, status: int
) -> None:
    reply = served.ask(path, method)
    assert reply.status == status, reply.text()
    assert {name: reply.headers.get(name) for name in EVERY_ANSWER} == EVERY_ANSWER
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["referrer-policy"] == ("same-origin" if path == "/login" else "no-referrer")
    if path.startswith("/api/"):
        assert reply.headers["cache-control"] == "no-store"
    if method == "HEAD":
        assert reply.body == b""
    elif status >= 400 and path != "/readyz":
        assert reply.headers["content-type"] == "application/json"
        assert reply.json().keys() == {"problem"}
        assert reply.json()["problem"].isascii()
        assert len(reply.json()["problem"]) > 20


def test_what_is_no_http_is_answered_with_the_headers_too(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as raw:
        raw.sendall(b"GET <img src=x> nonsense\r\nHost: 127.0.0.1\r\n\r\n")
        said = raw.makefile("rb").read().decode()
    assert said.startswith("HTTP/1.0 400")
    assert CONTENT_POLICY in said
    assert "<img" not in said


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:9401", "127.0.0.1.attacker.example", ""])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/stream", "/metrics", "/login", "/readyz"])
def test_a_name_that_is_not_ours_is_answered_nothing(served: Served, host: str, path: str) -> None:
    reply = served.ask(path, host=host)
    assert reply.status in (400, 421)
    assert reply.headers["content-security-policy"] == CONTENT_POLICY
    assert reply.json().keys() == {"problem"}


def test_a_whole_url_in_place_of_a_path_is_judged_by_its_own_name(served: Served) -> None:
    assert served.ask("http://attacker.example/api/status").status == 421
    assert served.ask(f"http://127.0.0.1:{served.port}/api/status").status == 200
    assert served.ask(f"http://127.0.0.1:{served.port}/api/status", host="attacker.example").status == 421


def test_a_page_of_another_site_reads_nothing_through_a_browser(served: Served) -> None:
    for path in ("/api/runs", "/api/stream", "/vendor/echarts.min.js"):
        assert served.ask(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status == 403
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert served.ask("/", headers=followed).status == 200, "a link to the page may be followed"
    assert served.ask("/api/runs", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status == 200


def test_without_a_token_nothing_of_a_run_is_seen(locked: Served) -> None:
    for path in (
        "/api/status",
        "/api/runs/x",
        "/api/stream",
        "/metrics",
        "/readyz",
        "/index.html",
        "/api/openapi.json",
    ):
        for headers in ({}, {"Cookie": f"rollbook-dashboard-{locked.port}={TOKEN}"}):
            reply = locked.ask(path, headers=headers)
            assert reply.status == 401, path
            assert reply.headers["www-authenticate"].startswith("Bearer")
        assert locked.ask(f"{path}?token={TOKEN}").status == 401, "in a URL it is taken by the page alone"
    asked = time.monotonic()
    assert locked.ask("/metrics", headers={"Authorization": "Bearer wrong"}).status == 401
    assert locked.ask("/?token=wrong").headers["location"] == "login"
    assert locked.ask("/", headers={"Cookie": f"rollbook-dashboard-{locked.port}=wrong"}).headers["location"] == "login"
    assert time.monotonic() - asked > 1.4, "who guesses waits"
    assert locked.ask("/").headers["location"] == "login"
    assert locked.ask("/healthz").status == 200
    assert locked.ask("/login").status == 200


def test_the_token_as_header(locked: Served) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for path, status in (("/api/status", 200), ("/metrics", 200), ("/index.html", 200), ("/api/runs/x", 404)):
        assert locked.ask(path, headers=bearer).status == status, path
    assert locked.ask("/metrics", headers={"Authorization": f"Basic {TOKEN}"}).status == 401
    with locked.events(headers={"Authorization": f"Bearer {TOKEN}"}) as stream:
        assert stream.next().frame["status"]["reading"] == "waiting"


def _cookie(header: str) -> str:
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    assert TOKEN not in header
    return header.partition(";")[0]


def test_a_link_with_the_token_is_exchanged_for_a_cookie(locked: Served) -> None:
    reply = locked.ask(f"/?token={TOKEN}")
    assert (reply.status, reply.headers["location"]) == (303, "./")
    cookie = _cookie(reply.headers["set-cookie"])
    assert "Secure" not in reply.headers["set-cookie"]
    assert locked.ask("/", headers={"Cookie": cookie}).status == 200
    with locked.events(headers={"Cookie": f"other=1; {cookie}"}) as stream:
        assert stream.next().frame["now"] is None
    wrong = locked.ask("/?token=wrong")
    assert (wrong.status, wrong.headers["location"], "set-cookie" in wrong.headers) == (303, "login", False)


def test_the_form_signs_in(locked: Served) -> None:
    here = {"Origin": f"http://127.0.0.1:{locked.port}"}
    form = locked.ask("/login").text()
    assert 'method="post" action="login"' in form
    assert not re.search(r"<script(?! src=\"login\.js\" defer></script>)|style=|\son\w+=", form)
    reply = locked.ask("/login", "POST", here, f"token={quote(TOKEN)}")
    assert (reply.status, reply.headers["location"]) == (303, "./")
    assert locked.ask("/api/runs", headers={"Cookie": _cookie(reply.headers["set-cookie"])}).status == 200
    behind_tls = locked.ask("/login", "POST", {**here, "X-Forwarded-Proto": "https"}, f"token={quote(TOKEN)}")
    assert "Secure" in behind_tls.headers["set-cookie"]


def test_the_form_refuses_what_is_wrong_or_comes_from_elsewhere(locked: Served) -> None:
    here = {"Origin": f"http://127.0.0.1:{locked.port}"}
    wrong = locked.ask("/login", "POST", here, "token=wrong")
    assert (wrong.status, wrong.headers["location"], "set-cookie" in wrong.headers) == (303, "login?wrong", False)
    assert "not its token" in locked.ask("/login?wrong").text()
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://attacker.example"}):
        assert locked.ask("/login", "POST", origin, f"token={quote(TOKEN)}").status == 403
    assert locked.ask("/login", "POST", here, "token=" + "x" * 10_000).status == 413


def test_who_keeps_very_many_connections_shuts_nobody_out(served: Served) -> None:
    kept: list[socket.socket] = []
    try:
        for _ in range(MOST_CONNECTIONS + 5):
            one = socket.create_connection(("127.0.0.1", served.port), timeout=10)
            kept.append(one)
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert one.recv(4_096).startswith(b"HTTP/1.1 ")
        assert served.ask("/api/status").status == 200
    finally:
        for one in kept:
            one.close()


def test_who_says_nothing_holds_nobody_up(served: Served) -> None:
    silent = [socket.create_connection(("127.0.0.1", served.port), timeout=10) for _ in range(40)]
    try:
        for one in silent:
            one.sendall(b"GET / HTTP/1.1\r\nHo")
        began = time.monotonic()
        assert served.ask("/api/status").status == 200
        assert time.monotonic() - began < 1
    finally:
        for one in silent:
            one.close()


@pytest.mark.parametrize(
    ("options", "variables", "code", "said"),
    [
        (["--listen", "nonsense"], {}, 2, "--listen 'nonsense' is no HOST:PORT"),
        (["--listen", "0.0.0.0:0"], {}, 2, "give a token with --token-file FILE or ROLLBOOK_DASHBOARD_TOKEN"),
        (["--listen", "0.0.0.0:0"], {"ROLLBOOK_DASHBOARD_TOKEN": "short"}, 2, "16 to 512 printable characters"),
        (["--token-file", "/nowhere"], {}, 2, "--token-file '/nowhere' cannot be read (No such file or directory)"),
        (["--public-name", "http://x"], {}, 2, "--public-name 'http://x' is no host's name"),
        (["--listen", "203.0.113.7:9"], {"ROLLBOOK_DASHBOARD_TOKEN": TOKEN}, 3, "cannot listen there"),
        ([], {"ROLLBOOK_TOPIC_PREFIX": "no prefix"}, 2, "ROLLBOOK_TOPIC_PREFIX"),
    ],
)
def test_what_it_cannot_begin_with_is_one_line(
    options: list[str], variables: dict[str, str], code: int, said: str
) -> None:
    ended = subprocess.run(
        command(*options), env=environment(NOBODY, **variables), capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr


def test_a_port_that_is_taken_is_one_line(served: Served) -> None:
    ended = subprocess.run(
        command("--listen", f"127.0.0.1:{served.port}"),
        env=environment(NOBODY),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1
    assert "choose another address" in ended.stderr


def test_a_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with dashboard(NOBODY, "--token-file", str(file)) as running:
        assert running.ask("/api/status").status == 401
        assert running.ask("/api/status", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_without_its_library_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['faust'] = None; from rollbook.infra.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", script, "dashboard"], env=environment(NOBODY), capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)
    assert "pip install 'rollbook[dashboard]'" in ended.stderr


def test_a_form_that_never_comes_whole_is_answered(locked: Served) -> None:
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{locked.port}\r\nOrigin: http://127.0.0.1:{locked.port}\r\n"
    form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken="
    with socket.create_connection(("127.0.0.1", locked.port), timeout=FORM_S + 10) as raw:
        raw.sendall((head + form).encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_in_time_with_streams_and_half_requests_open(number: signal.Signals) -> None:
    with dashboard(NOBODY) as running, running.events() as stream:
        stream.next()
        with socket.create_connection(("127.0.0.1", running.port)) as half:
            half.sendall(b"GET / HTTP/1.1\r\nHo")
            assert running.process is not None
            end(running.process, number)
