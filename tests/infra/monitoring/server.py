"""A real Prometheus for a test, on a free port, with the configuration of docs/monitoring.md."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollbook.infra.broker.ports import free_port
from rollbook.infra.monitoring.files import File
from rollbook.tests.infra.monitoring.promtool import tool
from rollbook.tests.structure.tree import ROOT

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an answer."""

    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server that answers."""

    base: str

    def query(self, expr: str, at: float | None = None) -> list[Sample]:
        """The vector; a scalar is one without labels. Raises AssertionError with Prometheus' own words."""
        asked = {"query": expr} | ({} if at is None else {"time": str(at)})
        data = self.get(f"query?{urllib.parse.urlencode(asked)}")
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]))]
        return [Sample(one["metric"], float(one["value"][1])) for one in data["result"]]

    def rules(self) -> list[dict[str, Any]]:
        """The rules that it has loaded."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def get(self, path: str) -> Any:
        """What the API answers."""
        try:
            with urllib.request.urlopen(f"{self.base}/api/v1/{path}", timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{urllib.parse.unquote_plus(path)}: {error.read().decode()}") from None

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def documented_config() -> str:
    """The block of the page."""
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    return str(block)


def config(processors: Sequence[str], dashboards: Sequence[str]) -> str:
    """The same, with these targets and every second."""
    text = documented_config()
    for written, meant in (
        ("15s", "1s"),
        ('"rollbook.rules.yml"', json.dumps(str(File.RULES.path))),
        ('["127.0.0.1:9400"]', json.dumps(list(processors))),
        ('["127.0.0.1:9401"]', json.dumps(list(dashboards))),
    ):
        assert written in text
        text = text.replace(written, meant)
    return text


@contextmanager
def prometheus(folder: Path, configuration: str) -> Iterator[Prometheus]:
    """It runs as long as the block lasts."""
    program = tool("prometheus")
    port = free_port()
    file = folder / "prometheus.yml"
    file.write_text(configuration, encoding="utf-8")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            found = Prometheus(f"http://127.0.0.1:{port}")
            wait_until(lambda: process.poll() is not None or found.is_ready(), "Prometheus does not answer")
            assert process.poll() is None, log.read_text(encoding="utf-8")
            yield found
        finally:
            process.kill()
            process.wait()


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    ends = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, otherwise
        time.sleep(0.1)
