// What stands in place of the figures while there are none: how to begin, what is waited for, which run is not known.

import { link } from "./address.js";
import { progress } from "./banner.js";
import { el, whenChanged } from "./dom.js";
import { many } from "./format.js";
import { isNoRun } from "./runs.js";
import { name, plain } from "./text.js";

const SHOWN = 12;

/** `show(page, view)` fills the place. */
export function message(place) {
  const fill = whenChanged((said) =>
    place.replaceChildren(el("div", { class: "message", data: { message: said.kind } }, ...parts(said))),
  );
  return (page, view) => fill(what(page, view));
}

function what({ frame, trouble, answered, refused }, view) {
  if (frame === null) return { kind: "unreachable", trouble, answered };
  const { status, runs } = frame;
  const known = runs.runs.map((one) => one.run_id);
  if (refused) return { kind: "no_run", refused, size: view.size, runs: known.slice(0, SHOWN) };
  if (status.reading === "waiting") return { kind: "waiting", fault: status.fault, prefix: status.topic_prefix };
  if (status.reading === "catching_up")
    return { kind: "catching_up", records: status.records, behind: status.behind, run: view.run };
  if (view.run)
    return {
      kind: "unknown_run",
      run: view.run,
      size: view.size,
      leftOut: runs.left_out,
      runs: known.slice(0, SHOWN),
    };
  return { kind: "empty", prefix: status.topic_prefix, size: view.size, strays: known.filter(isNoRun).slice(0, SHOWN) };
}

function parts(said) {
  const text = (words) => el("p", { text: words });
  const code = (...lines) => el("pre", { tabindex: "0" }, el("code", { text: lines.join("\n") }));
  switch (said.kind) {
    case "unreachable":
      return [
        el("h2", { text: said.answered ? "The dashboard answers with an error" : "The dashboard does not answer" }),
        text(said.trouble),
        text("This page tries again by itself."),
      ];
    case "waiting":
      return [
        el("h2", { text: "Waiting for Kafka" }),
        text(plain(said.fault) || "No broker, or no topics yet."),
        text(
          `It reads the topics ${plain(said.prefix)}decisions and ${plain(said.prefix)}freshness, and begins by itself once they are there.`,
        ),
      ];
    case "catching_up":
      return [
        el("h2", { text: "Catching up with the log" }),
        el("progress", progressOf(said)),
        text(progress(said)),
        said.run ? el("p", {}, "Nothing of ", name(said.run, 60), " so far.") : null,
      ];
    case "unknown_run":
      return [
        el("h2", {}, "Nothing is known of run ", name(said.run, 60)),
        text(
          said.leftOut
            ? `${many(said.leftOut, "open run")} not listed, since others are busier: rollbook freshness RUN shows them.`
            : "No decision about it was read. It appears here with its first one.",
        ),
        ...links("Runs that are known:", said.runs, said.size),
      ];
    case "no_run":
      return [
        el("h2", {}, "There is no run ", name(said.refused.run, 60)),
        text(said.refused.text),
        ...links("Runs that are known:", said.runs, said.size),
      ];
    default:
      return [
        el("h2", { text: "No runs yet" }),
        text(
          `A run appears here with its first decision on ${plain(said.prefix)}decisions. A processor must run, and something must report to it. To see all of it at work:`,
        ),
        code("rollbook demo"),
        ...links("Records came that are of no run:", said.strays, said.size),
      ];
  }
}

const links = (title, runs, size) =>
  runs.length === 0
    ? []
    : [
        el("p", { text: title }),
        el("ul", {}, ...runs.map((run) => el("li", {}, el("a", { href: link({ run, size }) }, name(run, 60))))),
      ];

const progressOf = ({ records, behind }) =>
  behind === null
    ? { "aria-label": "Catching up" }
    : { "aria-label": "Catching up", max: records + behind || 1, value: records };
