// Refusals by reason: over time, and so far.

import { count, words } from "../format.js";
import { total } from "../state.js";
import { name, short } from "../text.js";
import { bars, base, lastWindows, soFar, tip, values } from "./base.js";
import { stacked } from "./stacked.js";

const MOST_NAMES = 7;

export const refusals = {
  id: "refusals",
  title: "Refusals by reason",
  span: 6,
  scope: (context, mode) => (mode === "sofar" ? soFar(context) : lastWindows(context)),
  modes: [
    ["over", "Over time"],
    ["sofar", "So far"],
  ],
  view(context, mode) {
    const { colours, totals } = context;
    if (mode === "sofar") return refusalsSoFar(totals, colours);
    const sums = sumUp(
      context.slots.at.flatMap((one) => one?.refusals ?? []),
      ({ reason }) => reason,
    );
    const shown = sums.slice(0, MOST_NAMES).map(([reason]) => reason);
    const lines = shown.map((reason) => ({
      id: `r:${reason}`,
      name: words(reason),
      color: reasonColour(colours, reason),
      of: (one) => total(one.refusals.filter((refusal) => refusal.reason === reason)),
    }));
    if (sums.length > shown.length) {
      lines.push({
        id: "others",
        name: "others",
        color: colours.unknown,
        of: (one) => total(one.refusals.filter(({ reason }) => !shown.includes(reason))),
      });
    }
    return stacked(context, lines, {
      unit: "refusal",
      empty: "Nothing was refused in these windows.",
      caption: "Of Reserve and Admit rows are counted, elsewhere records.",
    });
  },
};

function refusalsSoFar({ refusals: all }, colours) {
  const sorted = [...all].sort((a, b) => b.count - a.count).slice(0, 12);
  if (sorted.length === 0) return { empty: "Nothing was refused so far." };
  const label = ({ record_type: of, reason }) => `${short(of, 24)}: ${short(words(reason), 40)}`;
  const upwards = sorted.toReversed();
  return {
    option: {
      ...base(colours, ([one]) => tip(label(upwards[one.dataIndex]), [["refused", count(one.value)]])),
      xAxis: values(colours),
      yAxis: {
        type: "category",
        data: upwards.map((one) => short(label(one), 32)),
        axisTick: { show: false },
        axisLine: { lineStyle: { color: colours.line } },
        axisLabel: { color: colours.muted, fontSize: 11 },
      },
      series: [
        bars(
          "refused",
          "refused",
          upwards.map((one) => ({ value: one.count, itemStyle: { color: reasonColour(colours, one.reason) } })),
          colours.refused,
          { barMaxWidth: 16 },
        ),
      ],
    },
    summary: `Refusals so far: ${sorted.map((one) => `${label(one)} ${one.count}`).join(", ")}.`,
    caption: "Of Reserve and Admit rows are counted, elsewhere records.",
    table: {
      head: ["Record", "Reason", "Refused"],
      numeric: [2],
      rows: sorted.map((one) => [name(one.record_type), name(one.reason), count(one.count)]),
    },
  };
}

function sumUp(list, keyOf) {
  const sums = new Map();
  for (const one of list) sums.set(keyOf(one), (sums.get(keyOf(one)) ?? 0) + one.count);
  return [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

const given = new Map();

/** A reason keeps its colour in all views: those that mean staleness or drift have their own, others by first come. */
function reasonColour(colours, reason) {
  if (reason === "stale_policy" || reason === "beyond_horizon") return colours.stale;
  if (reason === "future_policy") return colours.future;
  if (reason === "policy_drift") return colours.refused;
  if (!given.has(reason) && given.size < 1000) given.set(reason, given.size % 8);
  return colours[`other-${given.get(reason) ?? 7}`];
}
