"""Rollbook installed as others install it: in fresh environments, on every Python, with each extra alone.

    nox                          # all that this machine has Pythons for
    nox -s install-3.12          # one Python, the core and every extra
    nox -s lowest                # the oldest versions that pyproject.toml allows, and a share of the tests
    nox -s newest                # the newest, on the newest Python

Needs the network, and gigabytes for torch; run every night, of which `make test` has a share (tests/install).
"""

from pathlib import Path

import nox

ROOT = Path(__file__).parent
DATA = ROOT / "tests" / "data"
CHECK = ROOT / "tests" / "install" / "check.py"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = ("", "broker", "torch", "dashboard", "html", "trl", "dashboard,trl")

# What holds for every version of what rollbook stands on: not the wording of pydantic's JSON Schema (tests/frozen), of
# typer's help or of the reference pages, which are those of requirements/dev.lock; nor TRL's own numbers, which are of
# its one version and of the torch that is locked.
SHARE = ("tests/schemas", "tests/processors", "tests/replay", "tests/producers")
LEFT_OUT = ("-k", "not trl", "--ignore", "tests/producers/trl", "--ignore", "tests/replay/test_trl_table.py")
RUNTIME = "broker,torch,dashboard,html,trl"
TOOLS = ("avro", "hypothesis", "openapi-spec-validator", "playwright", "pytest<9.2", "pytest-timeout", "pytest-xdist")

nox.options.default_venv_backend = "uv"
nox.options.error_on_external_run = True
nox.options.reuse_existing_virtualenvs = False


def built(session: nox.Session) -> Path:
    """The wheel, made once a run, from the sdist, as a packager makes it."""
    into = Path(session.cache_dir).resolve() / "dist"  # a URI wants it whole
    if into not in _fresh:
        session.run("uv", "build", "--quiet", "--clear", "--out-dir", str(into), str(ROOT), external=True)
        _fresh.add(into)
    (wheel,) = into.glob("*.whl")
    return wheel


_fresh: set[Path] = set()


@nox.session(python=PYTHONS)
@nox.parametrize("extra", EXTRAS, ids=[extra or "core" for extra in EXTRAS])
def install(session: nox.Session, extra: str) -> None:
    """The wheel with one extra: what pip says, what can be imported, and a small round."""
    wheel = built(session)
    session.install(f"rollbook[{extra}] @ {wheel.as_uri()}" if extra else str(wheel))
    session.run("uv", "pip", "check", external=True)
    session.chdir(session.create_tmp())
    session.run("python", str(CHECK), str(DATA), *filter(None, [extra]))


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """The oldest of every range in pyproject.toml, on the oldest Python."""
    share(session, "lowest-direct")


@nox.session(python=PYTHONS[-1])
def newest(session: nox.Session) -> None:
    """The newest of everything, on the newest Python."""
    share(session, "highest")


def share(session: nox.Session, resolution: str) -> None:
    session.install("--resolution", resolution, "-e", f"{ROOT}[{RUNTIME}]")
    session.install(*TOOLS)
    session.run("uv", "pip", "check", external=True)
    # Without a browser the tests of pages skip, which they do not where CI is set: `.ci/run` installs one.
    session.run("pytest", *(session.posargs or (*SHARE, *LEFT_OUT, "-n", "2")), env={"CI": ""})
