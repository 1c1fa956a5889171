"""`rollbook doctor`: what is unsafe on a cluster and in its runs, each with its remedy."""

from typing import Annotated

import typer

from rollbook.infra.doctor.checks import CHECKS, diagnose
from rollbook.infra.doctor.facts import Finding, Level
from rollbook.infra.doctor.look import look
from rollbook.infra.looking.show import print_json, print_table
from rollbook.infra.settings import Settings
from rollbook.schemas.errors import AnswerNo
from rollbook.schemas.text import plural, visible

app = typer.Typer(help="Say what is unsafe.")


@app.command(epilog="Example: rollbook doctor --json")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object with every finding.")] = False,
) -> None:
    """Check the cluster, the topics of the prefix, the processor and every run, and say what is unsafe, with remedies.

    It reads the ledger of every run, and changes nothing. Warnings are worth knowing and harm nothing yet. Exits 1 when
    something is unsafe.
    """
    settings = Settings.from_env()
    facts = look(settings)
    found = diagnose(facts)
    unsafe = [finding for finding in found if finding.level is Level.UNSAFE]
    if as_json:
        counts = {level.value: sum(1 for one in found if one.level is level) for level in Level}
        print_json(
            {
                "bootstrap_servers": settings.bootstrap_servers,
                "topic_prefix": settings.topic_prefix,
                **counts,
                "findings": found,
            }
        )
    else:
        _print(found)
        seen = f"{plural(len(facts.brokers), 'broker')}, {plural(len(facts.topics), 'topic')}"
        print(f"{plural(len(CHECKS), 'check')} of {seen}, {plural(len(facts.runs), 'run')}: {_told(found)}")
    if unsafe:
        more = f" (and {len(unsafe) - 1} more, above)" if len(unsafe) > 1 else ""
        one = unsafe[0]
        raise AnswerNo(f"unsafe: {visible(one.about)}: {one.problem}: {one.remedy}{more}")


def _print(found: list[Finding]) -> None:
    for level in Level:
        rows = [(one.about, one.problem, one.remedy) for one in found if one.level is level]
        print_table(level.value, ("what", "is", "remedy"), rows, limit=None)


def _told(found: list[Finding]) -> str:
    unsafe = sum(1 for one in found if one.level is Level.UNSAFE)
    warned = len(found) - unsafe
    return f"{unsafe or 'nothing'} unsafe, {plural(warned, 'warning')}"
