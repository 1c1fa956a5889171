"""The files for Prometheus and Grafana: they lie beside their tables and come with the package."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rollbook.infra.monitoring.rules import rules

FOLDER = Path(__file__).resolve().parent


class File(StrEnum):
    """By what they are for."""

    RULES = "rollbook.rules.yml"
    GRAFANA = "rollbook.dashboard.json"

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return FOLDER / self.value

    def text(self) -> str:
        """As it is kept."""
        return self.path.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Made:
    """A file and what makes it."""

    file: File
    make: Callable[[], str]


def _grafana() -> str:
    from rollbook.infra.monitoring.grafana import dashboard_json

    return dashboard_json()


MADE = (Made(File.RULES, rules), Made(File.GRAFANA, _grafana))
