// The headline figures with their limits. What is at or beyond its limit says so by icon and words, not by colour alone.

import { el, setText } from "./dom.js";
import { NONE, count, decimal, nats, span } from "./format.js";
import { counted } from "./runs.js";
import { countOf, rowsRefused, total } from "./state.js";
import { short } from "./text.js";

const MARKS = {
  at: { glyph: "▲", words: "at the limit" },
  beyond: { glyph: "◆", words: "beyond the limit" },
  look: { glyph: "▲", words: "look here" },
};
const CLOSE = 0.5; // Of the drift threshold: engine and trainer disagree by that much with the same weights.

/** Each: its name (`data-figure`), label, figure, text, what stands below, and how it stands to its limit. */
const TILES = [
  {
    id: "active_version",
    label: "Active policy",
    value: ({ s }) => s.active_policy?.version,
    text: (v) => (v === undefined ? NONE : `v${v}`),
    below: ({ s }) => [
      ["learner_version", "learner's v", s.learner_policy?.version, (v) => v ?? NONE],
      [
        null,
        s.active_policy ? short(s.active_policy.artifact_hash.replace(/^sha256:/, ""), 14) : "nothing is active yet",
      ],
    ],
  },
  {
    id: "ready",
    label: "Ready to train on",
    value: ({ s }) => s.ready_fresh + s.ready_tolerated + s.ready_stale + s.ready_future + s.ready_unknown,
    below: ({ s }) => [
      ["ready_fresh", "fresh ", s.ready_fresh],
      ["ready_tolerated", "tolerated ", s.ready_tolerated],
      ...(s.ready_future ? [["ready_future", "future ", s.ready_future]] : []),
      ...(s.ready_unknown ? [["ready_unknown", "unknown ", s.ready_unknown]] : []),
    ],
  },
  {
    id: "ready_expiring",
    label: "Expiring",
    value: ({ s }) => s.ready_expiring,
    below: ({ s }) => [[null, `at lag ${s.max_lag}: stale with the next activation`]],
    mark: ({ s }) => (s.ready_expiring > 0 ? "at" : ""),
  },
  {
    id: "ready_stale",
    label: "Stale",
    value: ({ s }) => s.ready_stale,
    below: ({ s }) => [["max_lag", "lag above ", s.max_lag]],
    mark: ({ s }) => (s.ready_stale > 0 ? "beyond" : ""),
  },
  {
    id: "ready_stale_for_learner",
    label: "Stale for the learner",
    value: ({ s }) => s.ready_stale_for_learner,
    below: () => [[null, "a Reserve refuses them now"]],
    mark: ({ s }) => (s.ready_stale_for_learner > 0 ? "beyond" : ""),
  },
  {
    id: "mean_lag",
    label: "Mean lag of the ready",
    value: ({ s }) => s.mean_lag,
    text: (v) => decimal(v),
    below: ({ s }) => [
      [null, `limit ${s.max_lag}, in ${s.lag_unit === "depth" ? "policies (depth)" : "updates (ordinal)"}`],
    ],
    mark: ({ s }) =>
      s.mean_lag === null || s.mean_lag < s.max_lag || s.mean_lag === 0 ? "" : s.mean_lag > s.max_lag ? "beyond" : "at",
  },
  {
    id: "capacity",
    label: "Capacity",
    value: ({ s }) => s.capacity,
    below: ({ s }) =>
      s.capacity === null
        ? [[null, "not known before the first update"]]
        : [
            ["rows_per_update", "", s.rows_per_update, count, " rows an update"],
            ["updates_left", "", s.updates_left, count, s.updates_left === 1 ? " update left" : " updates left"],
          ],
    mark: ({ s }) => (s.capacity === 0 ? "at" : ""),
    markWords: "workers should pause",
  },
  {
    id: "workers_behind",
    label: "Workers behind",
    value: ({ s }) => s.workers_behind,
    below: ({ s }) => [["worker_count", "of ", s.worker_count, count, s.worker_count === 1 ? " worker" : " workers"]],
    mark: ({ s }) => (s.workers_behind > 0 ? "look" : ""),
    markWords: "not on the active policy",
  },
  {
    id: "open_update_count",
    label: "Open updates",
    value: ({ s }) => s.open_update_count,
    below: ({ s, now, nowMs }) => [
      ["in_doubt_count", "in doubt ", s.in_doubt_count],
      [null, leaseEnd(now.updates, nowMs)],
    ],
    mark: ({ s }) => (s.in_doubt_count > 0 ? "look" : ""),
    markWords: "in doubt",
  },
  {
    id: "drift_threshold",
    label: "Drift threshold",
    value: ({ s }) => s.max_mean_abs_log_ratio,
    text: (v) => `${nats(v)} nats`,
    below: ({ s }) => [
      ["drift_gate", "gate ", s.drift_gate, (v) => short(v, 16)],
      [
        "drift_floor",
        "floor ",
        lastFloor(s)?.mean_abs_log_ratio,
        (v) => (v === undefined ? NONE : `${nats(v)} (v${lastFloor(s).version})`),
      ],
    ],
    mark: ({ s }) => floorMark(s),
    markWords: "floor near the threshold",
  },
  {
    id: "consumed",
    label: "Consumed",
    soFar: true,
    value: ({ t }) => countOf(t.stages, "consumed"),
    below: ({ t }) => [["generated", "of ", countOf(t.stages, "generated"), count, " generated"]],
  },
  {
    id: "refused",
    label: "Refused",
    soFar: true,
    value: ({ t }) => total(t.refusals),
    below: ({ t }) => [
      ["refused_rows", "rows ", rowsRefused(t.refusals)],
      ["refused_records", "records ", total(t.refusals) - rowsRefused(t.refusals)],
    ],
  },
  {
    id: "failures",
    label: "Failures",
    soFar: true,
    value: ({ t }) => total(t.failures),
    below: ({ t }) => [
      ["failures_generation", "generation ", countOf(t.failures, "generation")],
      ["failures_reward", "reward ", countOf(t.failures, "reward")],
    ],
  },
  {
    id: "decisions",
    label: "Decisions",
    soFar: true,
    value: ({ t }) => t.decisions,
    below: ({ t }) => [["violations", "violations ", t.violations]],
    mark: ({ t }) => (t.violations > 0 ? "look" : ""),
    markWords: "a rule was broken",
  },
];

/** The row of tiles; `draw` fills it. */
export function tiles() {
  const made = TILES.map((tile) => new Tile(tile));
  return {
    node: el("div", { class: "tiles", role: "list", "aria-label": "Headline figures" }, ...made.map((one) => one.node)),
    draw(store) {
      const now = store.now;
      const about = { s: now.snapshot, t: now.totals, now, nowMs: store.frame.status.now_ms };
      for (const one of made) one.draw(about);
    },
  };
}

class Tile {
  constructor(tile) {
    this.tile = tile;
    this.value = el("strong", { class: "tile-value", data: { figure: tile.id } });
    this.below = el("span", { class: "tile-below" });
    this.mark = el("span", { class: "mark" });
    this.scope = tile.soFar ? el("span", { class: "scope" }) : null;
    this.node = el(
      "div",
      { class: "tile", role: "listitem", data: { tile: tile.id } },
      el("span", { class: "tile-label" }, tile.label, this.scope),
      this.value,
      this.below,
      this.mark,
    );
  }

  draw(about) {
    const { tile } = this;
    if (this.scope) setText(this.scope, counted(about.now.run));
    const known = tile.soFar || about.s !== null;
    const value = known ? tile.value(about) : null;
    setText(this.value, known ? (tile.text ?? count)(value) : NONE);
    this.value.dataset.value = value ?? "";
    const parts = known ? tile.below(about) : [[null, "no snapshot yet"]];
    this.below.replaceChildren(...parts.filter(([, text]) => text !== null).map(part));
    const mark = (known && tile.mark?.(about)) || "";
    this.node.dataset.mark = mark;
    this.mark.replaceChildren(
      ...(mark ? [el("span", { "aria-hidden": "true", text: `${MARKS[mark].glyph} ` }), markWords(tile, mark)] : []),
    );
  }
}

const markWords = (tile, mark) => (tile.markWords ? tile.markWords : MARKS[mark].words);

function part([figure, text, value, as = count, after = null]) {
  if (figure === null) return el("span", { text });
  return el("span", {}, text, el("b", { text: String(as(value)), data: { figure, value: value ?? "" } }), after);
}

const lastFloor = (s) => s.drift_floor.at(-1);

function floorMark(s) {
  const floor = lastFloor(s)?.mean_abs_log_ratio ?? 0;
  return s.drift_gate === "required" && floor > CLOSE * s.max_mean_abs_log_ratio ? "look" : "";
}

function leaseEnd(updates, nowMs) {
  const ends = updates.map((one) => one.lease_until_ms).filter((end) => end !== null);
  if (ends.length === 0) return null;
  const left = (Math.min(...ends) - nowMs) / 1000;
  return left > 0 ? `next lease ends in ${span(left)}` : `a lease ran out ${span(-left)} ago`;
}
