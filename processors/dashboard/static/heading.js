// The run's own line: its name, how old its last decision is, and what is to be known before its figures are believed.

import { el, whenChanged } from "./dom.js";
import { ago, count, lately, minutes } from "./format.js";
import { isNoRun, silence } from "./runs.js";
import { name } from "./text.js";

export class Heading {
  #title = el("h1", { id: "run-title" });
  #about = el("p", { class: "run-about" });
  #name = whenChanged((run) => this.#title.replaceChildren(name(run, 80)));
  #say = whenChanged((parts) => this.#about.replaceChildren(...parts.map(part)));
  node = el("div", { class: "run-head" }, this.#title, this.#about);

  /** `standing`: of the page; while it is not live, it is not the run that is silent. */
  draw(run, nowMs, standing) {
    this.#name(run.run_id);
    const silent = standing === "live" ? silence(run, nowMs) : 0;
    this.#say([...last(run, nowMs, silent), ...beginning(run)]);
  }
}

function last(run, nowMs, silent) {
  if (run.closed) return [["", "closed"]];
  if (run.since < 1) return [["unread", "none of its decisions is there any more: only its last snapshot"]];
  if (isNoRun(run.run_id)) return [["", `records of no run, the last one ${ago(run.last_ms, nowMs)}`]];
  if (!silent) return [["", `last decision ${ago(run.last_ms, nowMs)}`]];
  return [
    ["silent", `silent for ${minutes(silent)}`],
    ["", `last decision at ${lately(run.last_ms, nowMs)}`],
  ];
}

function beginning(run) {
  if (isNoRun(run.run_id)) return [["note", "They name none, or cannot be read: the processor decides them by partition."]];
  if (run.since <= 1) return [];
  return [
    [
      "since",
      `counted from decision ${count(run.since)} on: earlier ones are gone, or it had given its place to a busier run`,
    ],
  ];
}

function part([kind, text], i) {
  const between = i ? " · " : "";
  if (kind !== "silent") return el("span", { data: { about: kind }, text: between + text });
  return el("strong", { class: "mark-near", data: { about: kind } }, el("span", { "aria-hidden": "true", text: "▲ " }), text);
}
