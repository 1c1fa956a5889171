"""All that can be asked of a history, of the cluster's or of exported files, for notebooks and checks of one's own.

    with open_history("my-run.avro", run="my-run") as history:
        (report,) = history.audit(heads=[noted])
        assert report.passed, report.findings

The commands are these methods; what they answer are frozen records. What is wrong with a history is in the answer; what
cannot be asked of it raises BadInput (OutOfRange with the offsets to be had), EnvironmentFault where broker or disk do
not play along, and NotTheLog where a file was changed, but for an audit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce

from rollbook.infra.settings import Topic
from rollbook.replay.audit.anchor import Anchor, anchor_of
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.bundles import check_bundles
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.given import bundles_at
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.seal import Sealed, plan, seal
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.audit.whatif_report import WhatIfReport
from rollbook.replay.diff.diff import RunIn, diff_runs
from rollbook.replay.diff.result import DiffReport
from rollbook.replay.engine.selection import Selection
from rollbook.replay.history.arguments import Place, path_of, paths_of, texts_of
from rollbook.replay.history.export import Exported, export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.records import records
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.history.targets import Targets, opened, opened_for
from rollbook.replay.materialize.form import Form
from rollbook.replay.materialize.materialize import Told, materialize
from rollbook.replay.materialize.report import MaterializeReport
from rollbook.replay.materialize.walk import wanted_of
from rollbook.replay.progress import Watch
from rollbook.replay.prove.asked import Asked
from rollbook.replay.prove.proof import Proof
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.replay.survivorship.result import SurvivorshipReport
from rollbook.replay.survivorship.survey import survey
from rollbook.replay.updates.replayed import ReplayedUpdate, Total, replay_history
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

Source = Place
"""An exported file, or an offset range such as `lifecycle:0:0-5000`."""


@contextmanager
def open_history(
    *sources: Source, run: str | None = None, everything: bool = False, watch: Watch = lambda *_: None
) -> Iterator["History"]:
    """Of files what they hold, without a broker; else of the cluster that ROLLBOOK_BOOTSTRAP_SERVERS names the ranges,
    all of the run, or with `everything` every partition. `watch` is told what is done of what."""
    with opened(sources, run, everything=everything) as of:
        yield History(of, watch)


@dataclass(frozen=True, slots=True)
class History:
    """An open history: of a run where one was given, of each partition in turn where it is of several."""

    of: Targets
    watch: Watch = lambda *_: None

    def records(self) -> Iterator[StoredRecord]:
        """Its committed records as they lie there, streamed."""
        return records(self.of, self.watch)

    def audit(
        self,
        *,
        anchor: Place | None = None,
        anchor_digest: str | None = None,
        heads: Iterable[str] = (),
        payloads: bool = True,
        bundles: Iterable[Place] = (),
    ) -> tuple[AuditReport, ...]:
        """Derive every decision again; a report for each partition. What does not fit, changed files too, is in its
        findings.

        `anchor`: the sealed file that ends where the range begins, which is there where its START is left open;
        `anchor_digest`: its digest, as it was noted elsewhere; `heads`: chain heads that were, each of which a decision
        must have, or the anchor where its digest is given. They are of one partition. `payloads`: also drift and
        recordings; `bundles`: bundles, or folders of them, that must be made of these records: what they are found to
        be is in the last report. Raises BadInput, also where nothing is decided, or no bundle can be checked."""
        noted, folders = texts_of(heads, "heads"), paths_of(bundles, "bundles")
        bundles_at(folders)  # before the fold, which may take long
        if anchor is None and anchor_digest is not None:
            raise BadInput("--anchor-digest is of an anchor: give its sealed file with --anchor, too")
        at = None if anchor is None else path_of(anchor, "anchor")
        before = () if at is None else (anchor_of(at, even_changed=True, noted=anchor_digest),)
        stretches = self._stretches(before)
        if len(stretches) > 1 and (noted or before):
            raise BadInput("--head and --anchor are of one partition: name its range, or --run RUN")
        with nullcontext() if at is None else FileLog([at]) as sealed:
            found = [
                audit(
                    self.of.log,
                    self.of.settings,
                    one,
                    anchor=before[0] if before else None,
                    heads=noted,
                    sealed=sealed,
                    payloads=payloads,
                    watch=self.watch,
                ).report
                for one in stretches
            ]
        if folders:
            checked = check_bundles(self.of.log, self.of.settings, folders)
            if all(one.passed for one in found):
                checked.demand_any()
            found[-1] = found[-1].with_bundles(checked)
        return tuple(found)

    def what_if(self, instead: Instead, *, anchor: Place | None = None) -> tuple[WhatIfReport, ...]:
        """The same history under other limits; a report for each partition."""
        if not isinstance(instead, Instead):
            raise BadInput(f"instead={visible(repr(instead))} are no limits: give Instead(...)")
        before = () if anchor is None else (anchor_of(path_of(anchor, "anchor")),)
        stretches = self._stretches(before)
        if len(stretches) > 1 and before:
            raise BadInput("--anchor is of one partition: name its range, or --run RUN")
        first = before[0] if before else None
        return tuple(what_if(self.of.log, one, instead, anchor=first, watch=self.watch) for one in stretches)

    def prove(
        self,
        *,
        policy: int | None = None,
        artifact: str | None = None,
        asked: Asked | None = None,
        heads: Iterable[str] = (),
    ) -> Proof:
        """What went into the weights of a policy of the run, by its version or its artifact's hash; with `asked` also
        whether any of these tasks did."""
        stretch = self._of_one_run("a proof")
        if (policy is None) == (artifact is None):
            raise BadInput("say whose weights: either a policy's version or an artifact's hash")
        if policy is not None and type(policy) is not int:
            raise BadInput(f"policy={visible(repr(policy))} is no version: give its number")
        if asked is not None and not isinstance(asked, Asked):
            raise BadInput(f"asked={visible(repr(asked))} asks nothing: give Asked.of(...), or read_asked of a file")
        wanted, noted = OfPolicy(policy, artifact), texts_of(heads, "heads")
        return prove(self.of.log, stretch, wanted, asked=asked, heads=noted, watch=self.watch)

    def report(self) -> SurvivorshipReport:
        """What became of every trajectory of the run, and what was never trained on."""
        return survey(self.of.log, self._of_one_run("a report"), self.watch)

    def replay(self, selection: Selection | None = None, *, total: Total | None = None) -> Iterator[ReplayedUpdate]:
        """Each committed update recomputed, when it is asked for. `total` is told of each, and has the verdict."""
        total = total or Total()
        for wanted in wanted_of(self.of):
            found = replay_history(self.of.log, wanted, selection, self.watch)
            total.began(found)
            for update in found.updates:
                total.took(update)
                yield update

    def materialize(
        self,
        out: Place,
        *,
        update: str | None = None,
        form: Form | None = None,
        told: Told = lambda _: None,
    ) -> tuple[MaterializeReport, ...]:
        """Write the bundles of all committed updates, or of one of the run, into a folder; a report for each
        partition. `told` of each bundle once it is on disk."""
        wanted, folder = wanted_of(self.of, update), path_of(out, "out")
        made = [materialize(self.of.log, one, folder, self.watch, form=form or Form(), told=told) for one in wanted]
        return tuple(made)

    def export(self, out: Place, *, payloads: bool = False) -> Exported:
        """Write it to a file, with the payloads that it names where asked for."""
        of, file = self.of, path_of(out, "out")
        return export(of.log, of.settings, of.ranges, file, run_id=of.run_id, payloads=payloads, watch=self.watch)

    def seal(
        self,
        out: Place,
        *,
        anchors: Iterable[Place] = (),
        anchor_digests: Iterable[str] = (),
        payloads: bool = False,
    ) -> Iterator[Sealed]:
        """Audit and write each partition with an anchor behind it, one after the other; `out` is a folder where there
        are several. `anchors`: the sealed files that end where the ranges begin; `anchor_digests`: their digests in the
        same order, as they were noted elsewhere."""
        files, digests = paths_of(anchors, "anchors"), texts_of(anchor_digests, "anchor_digests")
        if digests and len(digests) != len(files):
            raise BadInput(f"{len(files)} --anchor and {len(digests)} --anchor-digest: give one of each, in one order")
        noted = digests or (None,) * len(files)
        both = zip(files, noted, strict=True)
        before = tuple(anchor_of(file, even_changed=True, noted=digest) for file, digest in both)
        for one in plan(self._stretches(before), before, path_of(out, "out")):
            with ExitStack() as stack:
                sealed = None if one.before is None else stack.enter_context(FileLog([one.before.path]))
                yield seal(
                    self.of.log,
                    self.of.settings,
                    one.stretch,
                    one.out,
                    before=one.before,
                    sealed=sealed,
                    payloads=payloads,
                    watch=self.watch,
                )

    def _of_one_run(self, what: str) -> Stretch:
        """All of the run, or one range of it."""
        if self.of.run_id is None:
            raise BadInput(f"{what} is of one run: say which")
        lifecycle = self.of.settings.topic(Topic.LIFECYCLE)
        if self.of.are_named and (len(self.of.ranges) > 1 or self.of.ranges[0].topic != lifecycle):
            raise BadInput(
                f"several ranges are named, or one of another topic: name one of {lifecycle}, or none for all"
            )
        named = self.of.ranges[0] if self.of.are_named else None
        return stretch_of(self.of.log, self.of.settings, named, self.of.run_id)

    def _stretches(self, anchors: Sequence[Anchor] = ()) -> list[Stretch]:
        """What is folded, a partition each; an open one begins at its anchor."""
        of, lifecycle = self.of, self.of.settings.topic(Topic.LIFECYCLE)
        ranges: list[OffsetRange] = [one for one in of.ranges if of.are_named or one.topic == lifecycle]
        if not ranges:
            raise BadInput(f"nothing of {lifecycle} is in the files: export it, too")
        begun = [reduce(lambda found, before: before.begin(found), anchors, one) for one in ranges]
        return [stretch_of(of.log, of.settings, one, of.run_id) for one in begun]


def diff(run_a: str, run_b: str, *files: Source, watch: Watch = lambda *_: None) -> DiffReport:
    """The first reward, cohort, advantage or loss that differs between two runs of the same tasks. The files may hold
    one each or both, and be of different clusters; without any it is the cluster."""
    with opened_for(files, run_a) as a, opened_for(files, run_b) as b:
        return diff_runs(RunIn(run_a, a.log, a.settings), RunIn(run_b, b.log, b.settings), watch)
