"""`rollbook topics`: make the six topics, show them beside what they should be, and say who may do what with them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from rollbook.infra.looking.show import cell, console, print_json
from rollbook.infra.settings import DEFAULT_PARTITIONS, Settings
from rollbook.infra.topics.acl_table import Acl, Role, acls_for
from rollbook.infra.topics.topics import (
    TopicProblem,
    TopicState,
    check_topics,
    create_topics,
    describe_topics,
    in_one_line,
    wanted_of,
)
from rollbook.schemas.errors import AnswerNo, BadInput

app = typer.Typer(
    help="Create, describe or protect the six topics of a prefix (ROLLBOOK_TOPIC_PREFIX, by default 'rollbook.').",
    epilog="Example: rollbook topics create --partitions 8",
    no_args_is_help=True,
)


AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command(epilog="Example: rollbook topics create --partitions 8")
def create(
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000,
            show_default=f"as they are, {DEFAULT_PARTITIONS} for new ones",
            help="Of lifecycle, decisions, ledger and freshness: one number, fixed for the life of the prefix.",
        ),
    ] = None,
    payload_partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=10_000, show_default="as many", help="Of a new payloads topic."),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Set wrong settings of existing topics right.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create what is missing; existing topics are compared, and a difference is an error that names it."""
    settings = Settings.from_env()
    report = create_topics(settings, partitions, payload_partitions=payload_partitions, repair=repair)
    if as_json:
        print_json({**_place(settings), **asdict(report)})
        return
    for label, names in (("created", report.created), ("repaired", report.repaired), ("unchanged", report.unchanged)):
        for name in names:
            print(f"{label:<9}  {name}")
    print(f"{report.partitions} partitions a run topic, on {settings.bootstrap_servers}")


@app.command(epilog="Example: ROLLBOOK_TOPIC_PREFIX=team-a. rollbook topics describe")
def describe(as_json: AsJson = False) -> None:
    """Show the topics and their settings; exit 1 when one is missing or differs from what it must be."""
    settings = Settings.from_env()
    states = describe_topics(settings)
    problems = check_topics(settings)
    if as_json:
        print_json(
            {
                **_place(settings),
                "topics": [{"topic": state.name, "settings": wanted_of(state, problems)} for state in states],
                "problems": problems,
            }
        )
    else:
        _print_table(settings, states, problems)
    if problems:
        raise AnswerNo(in_one_line(problems, "in the JSON" if as_json else "marked red above"))


def _place(settings: Settings) -> dict[str, str]:
    return {"bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix}


def _print_table(settings: Settings, states: Sequence[TopicState], problems: Sequence[TopicProblem]) -> None:
    wrong = {(problem.topic, problem.setting) for problem in problems}
    table = Table("topic", "setting", "is", "should be", title=cell(settings.bootstrap_servers))
    for state in states:
        facts = wanted_of(state, problems)
        for position, fact in enumerate(facts):
            style = "red" if (state.name, fact.setting) in wrong else None
            last = position == len(facts) - 1
            name = state.name if position == 0 else ""
            table.add_row(name, fact.setting, cell(fact.actual), cell(fact.wanted), style=style, end_section=last)
    present = {state.name for state in states}
    for name in dict.fromkeys(problem.topic for problem in problems if problem.topic not in present):
        table.add_row(name, "topic", "missing", "present", style="red", end_section=True)
    console().print(table)


@app.command(epilog="Example: rollbook topics acl --grant worker=User:rollout --grant trainer=User:trainer --apply")
def acl(
    grant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=PRINCIPAL",
            show_default="every role, to a user of its name",
            help="Give a role to a principal, such as worker=User:rollout; repeatable.",
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Set them on the cluster; needs a user who may.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, an entry a line.")] = False,
) -> None:
    """Print the least access rights that each role needs, as commands for Kafka's own tool; --apply sets them.

    Roles: worker, reward, trainer, coordinator, processor, reader, operator, restorer. Entries are only ever added.
    """
    from rollbook.infra.topics.acls import apply_acls, commands

    settings = Settings.from_env()
    if apply and not grant:
        raise BadInput("--apply sets rights for users that exist: say which, such as --grant worker=User:rollout")
    given = [_granted(one) for one in grant] if grant else [(role, f"User:{role}") for role in Role]
    found: list[Acl] = []
    for role, principal in given:
        found += acls_for(role, principal, settings)
    if apply:
        apply_acls(found, settings)
    for line in found if as_json else commands(found, settings):
        print_json(line) if isinstance(line, Acl) else print(line)
    if apply and not as_json:
        print(f"# set: {len(found)} entries on {settings.bootstrap_servers}")


def _granted(text: str) -> tuple[Role, str]:
    role, _, principal = text.partition("=")
    kind, _, user = principal.partition(":")
    if role not in list(Role) or kind != "User" or not user.strip() or not principal.isprintable():
        raise BadInput(
            f"--grant {text[:100]!a} is not ROLE=PRINCIPAL: give one of {', '.join(Role)} and a principal as Kafka "
            "knows it, such as worker=User:rollout"
        )
    return Role(role), principal
