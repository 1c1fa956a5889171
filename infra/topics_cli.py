"""`rollbook topics`: make the six topics, or show them beside what they should be."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rollbook.infra.looking.show import cell
from rollbook.infra.settings import DEFAULT_PARTITIONS, Settings
from rollbook.infra.topics import check_topics, create_topics, describe_topics, in_one_line
from rollbook.schemas.errors import AnswerNo

app = typer.Typer(
    help="Create or describe the six topics of a prefix (ROLLBOOK_TOPIC_PREFIX, by default 'rollbook.').",
    epilog="Example: rollbook topics create --partitions 8",
    no_args_is_help=True,
)


@app.command(epilog="Example: rollbook topics create --partitions 8")
def create(
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            show_default=f"as they are, {DEFAULT_PARTITIONS} for new ones",
            help="Of lifecycle, decisions, ledger and freshness: one number, fixed for the life of the prefix.",
        ),
    ] = None,
    payload_partitions: Annotated[
        int | None, typer.Option(min=1, max=10_000, show_default="as many", help="Of a new payloads topic.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Set wrong settings of existing topics right.")] = False,
) -> None:
    """Create what is missing; existing topics are compared, and a difference is an error that names it."""
    settings = Settings.from_env()
    report = create_topics(settings, partitions, payload_partitions=payload_partitions, repair=repair)
    for label, names in (("created", report.created), ("repaired", report.repaired), ("unchanged", report.unchanged)):
        for name in names:
            print(f"{label:<9}  {name}")
    print(f"{report.partitions} partitions a run topic, on {settings.bootstrap_servers}")


@app.command(epilog="Example: ROLLBOOK_TOPIC_PREFIX=team-a. rollbook topics describe")
def describe() -> None:
    """Show the topics and their settings; exit 1 when one is missing or differs from what it must be."""
    settings = Settings.from_env()
    states = describe_topics(settings)
    problems = check_topics(settings)
    wrong = {(problem.topic, problem.setting) for problem in problems}
    table = Table("topic", "setting", "value", title=cell(settings.bootstrap_servers))
    for state in states:
        facts = [("partitions", str(state.partitions)), ("replication", str(state.replication))]
        facts += [(setting.name, state.value(setting.name)) for setting in state.spec.settings]
        for position, (name, value) in enumerate(facts):
            style = "red" if (state.name, name) in wrong else None
            last = position == len(facts) - 1
            table.add_row(state.name if position == 0 else "", name, cell(value), style=style, end_section=last)
    present = {state.name for state in states}
    for name in dict.fromkeys(problem.topic for problem in problems if problem.topic not in present):
        table.add_row(name, "missing", "", style="red", end_section=True)
    Console().print(table)
    if problems:
        raise AnswerNo(in_one_line(problems, "marked red above"))
