"""`rollbook replay` of a run, a range or exported files: each update is printed when it is done."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rollbook.replay.engine.result import Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.replay.histories import open_history
from rollbook.replay.progress import progress
from rollbook.replay.updates.replayed import Total, UpdateOutcome
from rollbook.replay.updates.report import lines, plain, plain_summary, summary, why_no_pass
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible


def print_history(
    texts: Sequence[str], run: str | None, selection: Selection, *, first: bool, as_json: bool
) -> Verdict:
    """Replay and print; `first` stops behind the first update that diverges. Raises BadInput, OutOfRange,
    EnvironmentFault."""
    for text in texts:
        if Path(text).is_dir():
            raise BadInput(f"{visible(text)} is a folder: give bundles alone, without --run, ranges or files")
    total = Total()
    with progress() as watch, open_history(*texts, run=run, watch=watch) as history:
        for update in history.replay(selection, total=total):
            print(json.dumps(plain(update)) if as_json else "\n".join(lines(update)), flush=True)
            if first and update.outcome is UpdateOutcome.DIVERGES:
                break
    print(json.dumps(plain_summary(total)) if as_json else summary(total))
    if total.verdict is Verdict.UNVERIFIED:
        print(why_no_pass(total), file=sys.stderr)
    return total.verdict
