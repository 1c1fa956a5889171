// Updates on a time line: reserved, then started, until they end; and where the lease of an open one runs out.

import { clock, count, moment, span, words } from "../format.js";
import { plain, short } from "../text.js";
import { base, categories, lastWindows, tip } from "./base.js";

const MOST = 16;
const ENDS = ["committed", "aborted", "expired", "rolled_back"];
const SIGNS = { committed: "✓", reserved: "", started: "" }; // All else is said in words.

export const updates = {
  id: "updates",
  title: "Updates",
  span: 12,
  height: "tall",
  scope: (context) => (context.slots.starts.length ? `${lastWindows(context)}, newest first` : "newest first"),
  view({ slots, now, nowMs, colours }) {
    const all = now.updates;
    if (all.length === 0) return { empty: "No update was begun yet." };
    const shown = all.filter((one) => slots.starts.length === 0 || endOf(one, nowMs) >= slots.starts[0]).slice(0, MOST);
    const rows = listed(all, nowMs);
    const tabular = {
      head: [
        "Update",
        "Learner",
        "Step",
        "Reserved",
        "Started",
        "Ended",
        "Rows",
        "Refused",
        "Consumed",
        "Lease until",
        "Why",
      ],
      numeric: [6, 7, 8],
      rows,
    };
    if (shown.length === 0)
      return { empty: `The newest update ended before these windows, ${moment(all[0].ended_ms)}.`, table: tabular };
    const range = rangeOf(slots, shown, nowMs);
    const names = shown.map((one) => short(one.update_id, 16));
    const counts = new Map();
    for (const one of shown) counts.set(one.step, (counts.get(one.step) ?? 0) + 1);
    return {
      option: {
        ...base(colours, ({ dataIndex }) => describe(shown[dataIndex], nowMs), { top: 8, right: 66 }),
        tooltip: { ...base(colours, ({ dataIndex }) => describe(shown[dataIndex], nowMs)).tooltip, trigger: "item" },
        xAxis: {
          type: "time",
          min: range.from,
          max: range.to,
          axisLabel: {
            color: colours.muted,
            hideOverlap: true,
            fontSize: 11,
            formatter: (ms) => clock(ms, slots.size || 1000),
          },
          axisLine: { lineStyle: { color: colours.line } },
          splitLine: { show: true, lineStyle: { color: colours.grid } },
        },
        yAxis: categories(colours, names, { inverse: true }),
        series: [
          {
            id: "updates",
            type: "custom",
            clip: false,
            data: shown.map((one, i) => [beginOf(one), i]),
            encode: { x: 0, y: 1 },
            renderItem: (_, api) => bar(shown[api.value(1)], api, range, nowMs, colours),
          },
        ],
      },
      legend: [
        { name: "gathering", color: colours.reserved },
        { name: "started", color: colours.generated },
        { name: "committed", color: colours.admitted },
        { name: "aborted or expired", color: colours.unknown },
        { name: "rolled back", color: colours.refused },
        { name: "in doubt", color: colours.stale },
        { name: "lease runs out", color: colours.limit, dash: true },
      ],
      summary: `Time line of ${shown.length} updates: ${[...counts].map(([step, n]) => `${n} ${words(step)}`).join(", ")}.`,
      caption: "A bar begins with the first Reserve; its first part gathers rows. ✓ is committed.",
      table: tabular,
    };
  },
};

const beginOf = (one) => one.reserved_ms ?? one.started_ms ?? one.ended_ms ?? 0;
const endOf = (one, nowMs) => one.ended_ms ?? nowMs;

/** From the first of them, if that lies in the windows, to a little of what comes: ends of leases. */
function rangeOf(slots, all, nowMs) {
  const from = Math.max(slots.starts[0] ?? 0, Math.min(...all.map(beginOf)));
  const newest = slots.starts.length
    ? slots.starts.at(-1) + slots.size
    : Math.max(...all.map((one) => one.ended_ms ?? beginOf(one)));
  const open = all.some((one) => one.ended_ms === null);
  const length = newest - from;
  const leases = all.map((one) => one.lease_until_ms ?? 0);
  const future = open
    ? Math.max(Math.min(nowMs, newest + length), ...leases.map((end) => Math.min(end, newest + length * 0.3)))
    : newest;
  return { from, to: Math.max(newest, future) };
}

function colourOf(one, colours) {
  if (one.step === "committed") return colours.admitted;
  if (one.step === "in_doubt") return colours.stale;
  if (one.step === "rolled_back") return colours.refused;
  return ENDS.includes(one.step) ? colours.unknown : colours.generated;
}

function bar(one, api, range, nowMs, colours) {
  const y = api.coord([range.from, api.value(1)])[1];
  const height = Math.min(14, api.size([0, 1])[1] * 0.7);
  const x = (ms) => api.coord([Math.max(range.from, Math.min(range.to, ms)), 0])[0];
  const begin = x(beginOf(one));
  const started = x(one.started_ms ?? endOf(one, nowMs));
  const end = Math.max(x(endOf(one, nowMs)), begin + 3);
  const box = (left, right, fill) => ({
    type: "rect",
    shape: { x: left, y: y - height / 2, width: Math.max(0, right - left), height, r: 2 },
    style: { fill },
  });
  const gathered = one.started_ms === null && ENDS.includes(one.step) ? colourOf(one, colours) : colours.reserved;
  const children = [box(begin, Math.max(started, begin + 2), gathered)];
  if (one.started_ms !== null) children.push(box(started, Math.max(end, started + 2), colourOf(one, colours)));
  children.push({
    type: "text",
    style: {
      x: end + 5,
      y,
      text: SIGNS[one.step] ?? words(one.step),
      fill: colours.ink,
      font: "11px system-ui, sans-serif",
      textVerticalAlign: "middle",
      stroke: colours.surface,
      lineWidth: 2,
    },
  });
  if (one.lease_until_ms !== null && one.lease_until_ms <= range.to) {
    const lease = x(one.lease_until_ms);
    children.push({
      type: "line",
      shape: { x1: end, y1: y, x2: lease, y2: y },
      style: { stroke: colours.limit, lineWidth: 1, lineDash: [2, 3] },
    });
    children.push({
      type: "line",
      shape: { x1: lease, y1: y - height / 2 - 2, x2: lease, y2: y + height / 2 + 2 },
      style: { stroke: colours.limit, lineWidth: 2 },
    });
  }
  return { type: "group", children };
}

function describe(one, nowMs) {
  const lines = [
    ["step", words(one.step)],
    ["learner", one.learner_id === "" ? "not known" : short(one.learner_id, 40)],
    ["reserved", moment(one.reserved_ms)],
    ["started", moment(one.started_ms)],
    ["took", span((endOf(one, nowMs) - beginOf(one)) / 1000)],
    ["rows", `${count(one.reserved)} reserved, ${count(one.refused)} refused, ${count(one.consumed)} consumed`],
  ];
  if (one.reason) lines.push(["why", short(one.reason, 80)]);
  if (one.lease_until_ms !== null) lines.push(["lease", lease(one, nowMs)]);
  return tip(short(one.update_id, 60), lines);
}

function lease(one, nowMs) {
  const left = (one.lease_until_ms - nowMs) / 1000;
  return left > 0 ? `ends in ${span(left)}` : `ran out ${span(-left)} ago`;
}

function listed(all, nowMs) {
  return all.map((one) => [
    short(one.update_id, 40),
    short(one.learner_id, 24),
    words(one.step),
    moment(one.reserved_ms),
    moment(one.started_ms),
    moment(one.ended_ms),
    count(one.reserved),
    count(one.refused),
    count(one.consumed),
    one.lease_until_ms === null ? "" : lease(one, nowMs),
    plain(short(one.reason, 80)),
  ]);
}
