"""The README's Python, run in order as a newcomer would, against a real broker and processor."""

import re
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.tests import recount
from rollbook.tests.processors.hosting import host_in_thread

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_code_in_the_readme_does_what_it_says(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", settings.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", settings.topic_prefix)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 1
    namespace: dict[str, Any] = {}
    with host_in_thread(settings):
        for number, block in enumerate(blocks):
            exec(compile(block, f"README block {number}", "exec"), namespace)
    assert "trained on 4 trajectories" in capsys.readouterr().out
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    decisions = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    figures = recount.figures("readme", lifecycle, decisions, recount.Codec())
    assert figures["trajectories"] == {"consumed": 4}
    assert figures["updates"] == {"committed": 1}
    assert figures["activated"] == []
