// The activation board: policies with their acks and who is missing, and what each worker serves.

import { el, setText, whenChanged } from "./dom.js";
import { count, many, moment } from "./format.js";
import { hash, name } from "./text.js";

const MOST_NAMES = 6;
const STATES = { active: "●", committed: "◐", prepared: "○", retired: "·", abandoned: "✕", orphaned: "✕" };

/** The board; `draw(store)` fills it. */
export function board() {
  const policies = el("tbody");
  const workers = el("tbody");
  const note = el("p", { class: "caption" });
  const blank = el("p", { class: "blank", text: "No policy is known yet." });
  const head = (...texts) => el("thead", {}, el("tr", {}, ...texts.map((text) => el("th", { scope: "col", text }))));
  const node = el(
    "section",
    { class: "card span-12", "aria-labelledby": "card-board", data: { card: "board" } },
    el("header", {}, el("h3", { id: "card-board" }, "Activation board ", el("span", { class: "scope", text: "now" }))),
    blank,
    el(
      "div",
      { class: "board" },
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Policies" },
        el(
          "table",
          {},
          el("caption", { text: "Policies" }),
          head("Policy", "Hash", "State", "Acks", "Missing or wrong", "Last refusal"),
          policies,
        ),
      ),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Workers" },
        el(
          "table",
          {},
          el("caption", { text: "Workers" }),
          head("Worker", "Serves", "Hash", "Stands", "Reported"),
          workers,
        ),
      ),
    ),
    note,
  );
  const fill = whenChanged(({ activation }) => {
    const required = activation.workers.filter((one) => one.required).map((one) => one.worker_id);
    policies.replaceChildren(...activation.policies.map((one) => policyRow(one, required)));
    // Who is wrong stands first.
    const ordered = [...activation.workers].sort((a, b) => (standing(b)[0] === "bad") - (standing(a)[0] === "bad"));
    workers.replaceChildren(...ordered.map(workerRow));
    blank.hidden = activation.policies.length + activation.workers.length > 0;
  });
  return {
    node,
    draw({ now, snapshot }) {
      fill({ activation: now.activation });
      const all = snapshot?.worker_count ?? now.activation.workers.length;
      const shown = now.activation.workers.length;
      setText(
        note,
        `${many(shown, "worker")} shown${all > shown ? ` of ${count(all)}` : ""}. Acks count the required workers that serve this version and hash now.`,
      );
    },
  };
}

function policyRow(one, required) {
  const acked = required.filter((worker) => one.acks.includes(worker));
  const state = one.orphaned && one.state !== "active" ? "orphaned" : one.state;
  const waits = state === "prepared" || state === "committed" || state === "active";
  const without = waits ? required.filter((worker) => !one.acks.includes(worker)) : [];
  return el(
    "tr",
    { data: { policy: one.version, state } },
    el("th", { scope: "row", text: `v${one.version}` }),
    el("td", {}, hash(one.artifact_hash)),
    el(
      "td",
      {},
      el(
        "span",
        { class: `state state-${state}` },
        el("span", { "aria-hidden": "true", text: `${STATES[state] ?? ""} ` }),
        name(state, 16),
      ),
      ...(one.orphaned && state === "active" ? [el("div", { class: "mark-inline", text: "✕ orphaned" })] : []),
    ),
    el("td", {
      class: "number",
      text:
        waits || one.acks.length
          ? required.length
            ? `${acked.length}/${required.length}`
            : String(one.acks.length)
          : "–",
      data: { figure: `acks_v${one.version}`, value: acked.length },
    }),
    el("td", {}, ...missing(one, without)),
    el("td", {}, ...refusal(one)),
  );
}

function missing(one, without) {
  const wrong = without.filter((worker) => one.mismatched_workers.includes(worker));
  const silent = without.filter((worker) => !wrong.includes(worker));
  return [...names("no ack", silent), ...names("serves another", wrong)];
}

function refusal(one) {
  if (!one.refused) return [];
  return [
    el(
      "span",
      { class: "mark-inline" },
      el("span", { "aria-hidden": "true", text: "◆ " }),
      name(one.refused.replaceAll("_", " "), 40),
    ),
    el("span", { class: "muted", text: ` ${moment(one.refused_ms)}` }),
    ...names("missing", one.missing_workers),
    ...names("mismatched", one.mismatched_workers),
  ];
}

function names(label, list) {
  if (list.length === 0) return [];
  const left = list.length - MOST_NAMES;
  return [
    el(
      "div",
      { class: "names" },
      el("span", { class: "muted", text: `${label}: ` }),
      ...list.slice(0, MOST_NAMES).flatMap((one, i) => [i ? ", " : "", name(one, 28)]),
      left > 0 ? ` and ${count(left)} more` : "",
    ),
  ];
}

function workerRow(one) {
  return el(
    "tr",
    { data: { worker: one.worker_id, standing: standing(one)[0] } },
    el("th", { scope: "row" }, name(one.worker_id, 28)),
    el("td", { text: one.version === null ? "–" : `v${one.version}` }),
    el("td", {}, one.artifact_hash ? hash(one.artifact_hash) : "–"),
    el(
      "td",
      {},
      el(
        "span",
        { class: `state state-${standing(one)[0]}` },
        el("span", { "aria-hidden": "true", text: `${standing(one)[1]} ` }),
        standing(one)[2],
      ),
      one.failure ? el("div", { class: "names" }, name(one.failure, 120)) : null,
    ),
    el("td", { class: "nowrap", text: moment(one.reported_ms) }),
  );
}

/** Class, sign and words. */
function standing(one) {
  if (one.serves_active) return ["ok", "●", "serves the active policy"];
  if (one.failure) return ["bad", "✕", "failed to load"];
  if (one.version === null) return one.required ? ["bad", "✕", "has not reported"] : ["other", "○", "has not reported"];
  return one.required ? ["bad", "◆", "behind the active policy"] : ["other", "○", "serves another (not required)"];
}
