"""`rollbook ledger`, `decisions`, `freshness` and `explain`: what there is to see of a run."""

from typing import Annotated, NoReturn

import typer

from rollbook.infra.commands.options import Follow, Last
from rollbook.infra.looking import decisions as asked
from rollbook.infra.looking.decisions_page import decision_line, header_line, print_decisions
from rollbook.infra.looking.explain import explain as explain_id
from rollbook.infra.looking.explain_page import print_explained
from rollbook.infra.looking.freshness import newest_snapshot, print_freshness
from rollbook.infra.looking.ledger import heard_at, read_ledger, view
from rollbook.infra.looking.ledger_page import print_ledger
from rollbook.infra.looking.place import Place, place_of_run
from rollbook.infra.looking.show import SHOWN, print_json
from rollbook.infra.output import sleep_while_read
from rollbook.replay.progress import progress
from rollbook.schemas.errors import AnswerNo, BadInput
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus
from rollbook.schemas.text import plural, visible

app = typer.Typer(help="Look at a run.")

Run = Annotated[str, typer.Option("--run", metavar="RUN", help="The run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@app.command(epilog="Example: rollbook decisions --run my-run --limit 20")
def decisions(
    run: Run,
    trajectory: Annotated[
        str | None, typer.Option(metavar="TRAJECTORY", help="Only those that name this trajectory.")
    ] = None,
    update: Annotated[str | None, typer.Option(metavar="UPDATE", help="Only those of this update.")] = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="REASON", help="Only this reason, also of an item; repeatable.")
    ] = None,
    outcome: Annotated[
        list[Outcome] | None,
        typer.Option(metavar="OUTCOME", help=f"Only this outcome; repeatable. One of {', '.join(Outcome)}."),
    ] = None,
    record_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only of this record type, such as Commit; repeatable."),
    ] = None,
    limit: Last = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Print the decisions of a run: a table, or with --json each as one line.

    The offset is that of the lifecycle record decided. Only committed decisions are shown. A mass change names its
    first 100 trajectories; `rollbook explain` knows them all. Exits 1 when there is none, 2 for a run that is nowhere,
    and 130 when --follow is ended with Ctrl-C.
    """
    which = asked.wanted(trajectory, update, reason or (), outcome or (), record_type or ())
    with place_of_run(run) as place:
        if follow:
            _follow(place, which, limit, as_json)
        elif as_json and limit is None:
            found = sum(1 for decided in asked.every(place, which) if print_json(decided.decision))
        else:
            last = asked.last(place, limit or SHOWN, which)
            found = len(last)
            if as_json:
                for decided in last:
                    print_json(decided.decision)
            elif last:
                print_decisions(last, asked.count(place), trajectory, filtered=not which.all)
        if not found:
            raise _none_wanted(place)


def _follow(place: Place, which: asked.Wanted, limit: int | None, as_json: bool) -> NoReturn:
    if not as_json:
        print(header_line(), flush=True)
    for decided in asked.follow(place, which, limit if as_json or limit else SHOWN, sleep_while_read):
        if as_json:
            print_json(decided.decision)
        else:
            print(decision_line(decided, which.trajectory), flush=True)
    raise AssertionError("following never ends by itself")


def _none_wanted(place: Place) -> AnswerNo | BadInput:
    total = asked.count(place)
    if not total:
        return place.nothing("decision")
    return AnswerNo(
        f"run {visible(place.run_id)} has {plural(total, 'decision')}, none of which is asked for: leave an option out"
    )


@app.command(epilog="Example: rollbook freshness my-run")
def freshness(
    named: Annotated[str | None, typer.Argument(metavar="RUN", help="The run.", show_default=False)] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="The run, as other commands take it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print how stale the rows of a run are, what is refused and why, who lags behind, and what goes stale next.

    These are the last figures that the processor has committed. Exits 2 when there are none of this run.
    """
    if (named is None) == (run is None):
        raise BadInput("a run, and only one, is wanted: name it, as `rollbook freshness RUN`")
    with place_of_run(named or run or "") as place:
        snapshot = newest_snapshot(place)
    if as_json:
        print_json(snapshot)
    else:
        print_freshness(snapshot)


@app.command(epilog="Example: rollbook ledger --run my-run --state reserved")
def ledger(
    run: Run,
    state: Annotated[
        TrajectoryStatus | None,
        typer.Option(
            metavar="STATE", help=f"List the trajectories in this state instead. One of {', '.join(TrajectoryStatus)}."
        ),
    ] = None,
    update: Annotated[
        str | None,
        typer.Option(metavar="UPDATE", help="Show this update instead, with what it holds or has trained on."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the ledger of a run as it is now, from what the processor has committed.

    Active policy and floor, trajectories by state, open updates, learners, policies, workers, and facts that wait.
    Exits 1 for an update that it does not know, and 2 for such a run.
    """
    with progress() as watch, place_of_run(run, watch) as place:
        found, next_offset = read_ledger(place)
        if update is not None and update not in found.updates:
            raise AnswerNo(f"run {visible(run)} has no update {visible(update)}: `rollbook ledger` lists the open ones")
        shown = view(found, next_offset, heard_at(place, found, update), state=state, update_id=update)
    if as_json:
        print_json(shown)
    else:
        print_ledger(shown)


@app.command(epilog="Example: rollbook explain 3 --run my-run")
def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="A trajectory, an update, or the version of a policy.", show_default=False),
    ],
    run: Run,
    as_json: AsJson = False,
) -> None:
    """Print the history of one thing, from its generation to its end: every record with offset, reason and effect.

    The run is folded again from its first record, so changes of many at once are exact; up to the last decision that
    is committed. Where an id names several things each has its page, as JSON its line. Exits 1 for an unknown id.
    """
    with progress() as watch, place_of_run(run, watch) as place:
        explained = explain_id(place, name)
    if not explained.pages:
        raise AnswerNo(
            f"run {visible(run)} knows no trajectory, update or policy {visible(name)}: `rollbook ledger` and "
            "`rollbook decisions` name those that it knows"
        )
    if as_json:
        for page in explained.pages:
            print_json({"run_id": run, "chain_agrees": explained.chain_agrees, "page": page})
    else:
        print_explained(explained)
