// Recent decisions, by outcome and record type, with links to the histories of their trajectories.

import { go, link } from "./address.js";
import { el, keyedRows, setText } from "./dom.js";
import { clock, count, many, moment, words } from "./format.js";
import { name, plain } from "./text.js";

const MOST_TYPES = 40;
const MOST_KEPT = 500; // A frame brings the newest 50; a filter would often find nothing in so few.
const SIGNS = { accepted: "✓", rejected: "✕", duplicate: "=", pending: "…", invalid: "!", undecodable: "!" };

/** The table; `draw(store, view)` fills it, `view()` tells the present address. */
export function decisions(view) {
  let now = null;
  let seen = [];
  let seenOf = "";
  const outcome = choice("outcome", "All outcomes");
  const type = choice("type", "All records");
  const body = el("tbody");
  const blank = el("p", { class: "blank" });
  const note = el("p", { class: "caption" });
  const more = el("button", {
    type: "button",
    class: "quiet small",
    text: `Load ${MOST_KEPT}`,
    on: { click: () => void load() },
  });
  const wanted = el("input", {
    type: "text",
    id: "find-trajectory",
    placeholder: "Trajectory id",
    spellcheck: "false",
    autocomplete: "off",
  });
  const find = el(
    "form",
    { class: "find", role: "search", on: { submit: open } },
    el("label", { for: "find-trajectory", class: "visually-hidden", text: "Trajectory" }),
    wanted,
    el("button", { type: "submit", class: "small", text: "History" }),
  );
  const head = ["Time", "Decision", "Record", "Outcome", "Reason", "About", "Rows by reason", "Trajectories"];
  const node = el(
    "section",
    { class: "card span-12", "aria-labelledby": "card-decisions", data: { card: "decisions" } },
    el(
      "header",
      {},
      el("h3", { id: "card-decisions" }, "Recent decisions ", el("span", { class: "scope", text: "newest first" })),
      el("div", { class: "card-tools" }, outcome.node, type.node, more, find),
    ),
    el(
      "div",
      { class: "scroll scroll-tall", tabindex: "0", role: "region", "aria-label": "Recent decisions" },
      el(
        "table",
        { class: "decisions" },
        el("caption", { class: "visually-hidden", text: "Recent decisions" }),
        el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col", text })))),
        body,
      ),
    ),
    blank,
    note,
  );
  return { node, draw };

  function draw(store) {
    now = store.now;
    const key = `${store.frame.status.instance} ${now.run.run_id}`;
    seen = merged(now.decisions, seenOf === key ? seen : []);
    seenOf = key;
    fill();
  }

  function fill() {
    const all = seen;
    outcome.offer(all.map((one) => one.outcome));
    type.offer(all.map((one) => one.record_type || "undecodable"));
    const shown = all.filter((one) => outcome.takes(one.outcome) && type.takes(one.record_type || "undecodable"));
    keyedRows(
      body,
      shown,
      (one) => `${now.run.run_id}#${one.sequence}`,
      (one) => row(one, view()),
    );
    blank.hidden = shown.length > 0;
    setText(blank, all.length ? "None of these is so." : "No decision was read yet.");
    setText(
      note,
      `${many(shown.length, "decision")} shown of ${count(all.length)}: the newest 50, and what this page has seen or loaded. Names: the first 8 trajectories of each.`,
    );
  }

  async function load() {
    const run = now.run.run_id;
    more.disabled = true;
    try {
      const answer = await fetch(`/api/runs/${encodeURIComponent(run)}/decisions?limit=${MOST_KEPT}`);
      const said = await answer.json();
      if (!answer.ok) throw new Error(said.problem);
      if (run === now.run.run_id) seen = merged(said.decisions, seen);
      fill();
    } catch (error) {
      setText(note, `Not loaded: ${plain(error.message)}`);
    } finally {
      more.disabled = false;
    }
  }

  function open(event) {
    event.preventDefault();
    const id = wanted.value.trim();
    if (id) go({ ...view(), trajectory: id });
  }

  function choice(id, all) {
    const select = el(
      "select",
      { id: `filter-${id}`, "aria-label": all, on: { change: () => fill() } },
      el("option", { value: "", text: all }),
    );
    return {
      node: select,
      takes: (value) => select.value === "" || select.value === value,
      offer(values) {
        const there = new Set([...select.options].map((option) => option.value));
        for (const value of new Set(values)) {
          if (!there.has(value) && select.options.length < MOST_TYPES)
            select.append(el("option", { value, text: plain(value).slice(0, 40) }));
        }
      },
    };
  }
}

function merged(newest, older) {
  const newer = new Set(newest.map((one) => one.sequence));
  return [...newest, ...older.filter((one) => !newer.has(one.sequence))]
    .sort((a, b) => b.sequence - a.sequence)
    .slice(0, MOST_KEPT);
}

function row(one, view) {
  const ids = one.trajectory_ids;
  const history = (id) => el("a", { href: link({ ...view, trajectory: id }) }, name(id, 14));
  const sign = el("span", { "aria-hidden": "true", text: `${SIGNS[one.outcome] ?? ""} ` });
  return el(
    "tr",
    { data: { sequence: one.sequence } },
    el("td", { class: "nowrap", title: moment(one.time_ms), text: clock(one.time_ms) }),
    el("td", {
      class: "number",
      text: count(one.sequence),
      title: `partition ${one.partition}, offset ${one.source_offset}, decision at ${one.offset}`,
    }),
    el("td", {}, name(one.record_type || "undecodable", 24)),
    el(
      "td",
      { class: "nowrap" },
      el("span", { class: `outcome outcome-${one.outcome}` }, sign, words(one.outcome)),
      one.violation ? el("span", { class: "mark-inline", text: " ◆ violation" }) : null,
    ),
    el(
      "td",
      {},
      one.reason === "ok" ? "" : name(words(one.reason), 40),
      one.detail ? el("div", { class: "muted" }, name(one.detail, 90)) : null,
    ),
    el(
      "td",
      {},
      one.subject_kind ? el("span", { class: "muted", text: `${plain(one.subject_kind).slice(0, 24)} ` }) : null,
      one.subject_id ? name(one.subject_id, 20) : null,
      one.update_id && one.update_id !== one.subject_id
        ? el("div", {}, el("span", { class: "muted", text: "update " }), name(one.update_id, 20))
        : null,
    ),
    el(
      "td",
      {},
      ...one.items
        .slice(0, 5)
        .flatMap((item, i) => [i ? ", " : "", name(words(item.name), 28), ` ${count(item.count)}`]),
      one.items.length > 5 ? ` and ${one.items.length - 5} more` : "",
    ),
    el("td", {}, ...ids.flatMap((id, i) => [i ? " " : "", history(id)])),
  );
}
