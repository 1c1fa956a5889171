// The history of one trajectory: what was decided about it, step by step.

import { link } from "./address.js";
import { el, table } from "./dom.js";
import { NONE, count, moment, nats, words } from "./format.js";
import { name, plain } from "./text.js";

/** The view of a trajectory; `show(view)` loads it. */
export function trajectoryView(place) {
  let asked = "";
  return {
    async show(view) {
      const { run, trajectory: id } = view;
      const key = JSON.stringify([run, id]);
      if (key === asked) return;
      asked = key;
      const body = el("div");
      const fill = (...children) => body.replaceChildren(...children);
      place.replaceChildren(heading(view), body);
      fill(el("p", { class: "blank", "aria-busy": "true", text: "Reading its decisions from the log ..." }));
      const answer = await ask(run, id);
      if (asked !== key) return;
      if (answer.problem !== undefined) {
        const again = el("button", {
          type: "button",
          text: "Try again",
          on: { click: () => ((asked = ""), void this.show(view)) },
        });
        fill(
          el(
            "div",
            { class: "banner banner-bad", data: { banner: "trajectory" } },
            el("strong", { text: "No history." }),
            " ",
            el("span", { text: plain(answer.problem) }),
            " ",
            again,
          ),
        );
      } else fill(...history(answer));
    },
    leave() {
      asked = "";
    },
  };
}

async function ask(run, id) {
  // As a parameter: a browser takes "." and ".." out of a path, encoded or not.
  const asked = new URLSearchParams({ id });
  try {
    const answer = await fetch(`/api/runs/${encodeURIComponent(run)}/trajectories?${asked}`);
    return await answer.json();
  } catch {
    return { problem: "The dashboard does not answer. Look whether it still runs." };
  }
}

function heading(view) {
  const title = el("h2", { id: "trajectory-title", tabindex: "-1" }, "Trajectory ", name(view.trajectory, 80));
  return el(
    "header",
    { class: "history-head" },
    el("a", { class: "back", href: link({ ...view, trajectory: "" }) }, "← All figures"),
    title,
    el("p", { class: "muted" }, "of run ", name(view.run, 80)),
  );
}

function history({ steps, complete, more }) {
  const states = path(steps);
  const head = ["Decision", "Time", "Record", "Outcome", "Reason", "State", "Lag", "Drift (nats)", "Update"];
  const row = (one) => [
    el("span", { text: count(one.sequence), title: `offset ${one.source_offset}` }),
    moment(one.time_ms),
    name(one.record_type, 24),
    words(one.outcome),
    name(words(one.reason), 48),
    one.state_before === one.state_after
      ? name(one.state_after ?? NONE, 20)
      : el("span", {}, name(one.state_before ?? "unknown", 20), " → ", name(one.state_after ?? NONE, 20)),
    one.lag === null ? "" : String(one.lag),
    one.mean_abs_log_ratio === null ? "" : nats(one.mean_abs_log_ratio),
    one.update_id ? name(one.update_id, 24) : "",
  ];
  const incomplete = complete
    ? "All decisions about it are here."
    : "Earlier decisions about it may be missing: the dashboard remembers only so much.";
  return [
    el(
      "ol",
      { class: "path", "aria-label": "States" },
      ...states.map((state) => el("li", { class: "state-step" }, name(words(state), 24))),
    ),
    el(
      "section",
      { class: "card" },
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Decisions about it" },
        table("Decisions about the trajectory", head, steps.map(row), { numeric: [6, 7] }),
      ),
      steps.length === 0 ? el("p", { class: "blank", text: "No decision about it is remembered." }) : null,
    ),
    el("p", { class: "caption" }, `${incomplete} The whole run is folded for it by `, el("code", {}, name(more, 400))),
  ];
}

/** The states it went through, each once where it stayed. */
function path(steps) {
  const states = [];
  for (const { state_before: before, state_after: after } of steps) {
    for (const state of [states.length === 0 ? before : null, after]) {
      if (state !== null && state !== undefined && states.at(-1) !== state) states.push(state);
    }
  }
  return states;
}
