// Charts of counts over time: admission, refusals by reason, throughput by stage, failures by stage.

import { count, many, words } from "../format.js";
import { countOf, rowsRefused, total } from "../state.js";
import { short } from "../text.js";
import { bars, base, lastWindows, slotTitle, timeAxis, tip, values } from "./base.js";

const MOST_NAMES = 7;
const STAGES = ["dispatched", "generated", "rewarded", "reserved", "admitted", "consumed", "discarded"];
const DASHES = { dispatched: [2, 3], discarded: [2, 3], rewarded: [6, 3], reserved: [6, 3] };

export const admission = {
  id: "admission",
  title: "Admitted and refused",
  span: 8,
  scope: lastWindows,
  view(context) {
    const { colours, totals } = context;
    const lines = [
      { id: "admitted", name: "admitted", color: colours.admitted, of: (one) => countOf(one.stages, "admitted") },
      { id: "refused", name: "refused by Reserve or Admit", color: colours.refused, of: (one) => rowsRefused(one.refusals) },
    ];
    const sofar = `So far ${count(countOf(totals.stages, "admitted"))} admitted, ${count(rowsRefused(totals.refusals))} refused.`;
    return stacked(context, lines, { unit: "row", empty: "Nothing was admitted or refused in these windows.", caption: `Rows. ${sofar}` });
  },
};

export const refusals = {
  id: "refusals",
  title: "Refusals by reason",
  span: 6,
  scope: lastWindows,
  modes: [
    ["over", "Over time"],
    ["sofar", "So far"],
  ],
  view(context, mode) {
    const { colours, totals } = context;
    if (mode === "sofar") return refusalsSoFar(totals, colours);
    const sums = sumUp(context.slots.at.flatMap((one) => one?.refusals ?? []), ({ reason }) => reason);
    const shown = sums.slice(0, MOST_NAMES).map(([reason]) => reason);
    const lines = shown.map((reason) => ({
      id: `r:${reason}`,
      name: words(reason),
      color: reasonColour(colours, reason),
      of: (one) => total(one.refusals.filter((refusal) => refusal.reason === reason)),
    }));
    if (sums.length > shown.length) {
      lines.push({ id: "others", name: "others", color: colours.unknown, of: (one) => total(one.refusals.filter(({ reason }) => !shown.includes(reason))) });
    }
    return stacked(context, lines, { unit: "refusal", empty: "Nothing was refused in these windows.", caption: "Of Reserve and Admit rows are counted, elsewhere records." });
  },
};

export const throughput = {
  id: "throughput",
  title: "Throughput by stage",
  span: 6,
  scope: lastWindows,
  view({ slots, colours, totals }) {
    const perSecond = 1000 / slots.size;
    const lines = STAGES.map((stage) => ({ stage, data: slots.at.map((one) => (one === null ? 0 : countOf(one.stages, stage))) }));
    if (lines.every(({ data }) => data.every((n) => n === 0))) return { empty: "No trajectory moved in these windows." };
    const rate = (n) => `${(n * perSecond).toPrecision(3)}/s`;
    return {
      option: {
        ...base(colours, (points) => tip(slotTitle(slots, points[0].dataIndex), points.map((one) => [one.seriesName, `${count(one.value)} (${rate(one.value)})`, one.color]))),
        xAxis: timeAxis(colours, slots, { boundaryGap: false }),
        yAxis: values(colours, { name: "trajectories a window" }),
        series: lines.map(({ stage, data }) => ({
          id: stage,
          name: stage,
          type: "line",
          data,
          showSymbol: false,
          lineStyle: { width: stage === "consumed" ? 2.5 : 1.5, type: DASHES[stage] ?? "solid" },
          color: colours[stage],
          emphasis: { disabled: true },
        })),
      },
      legend: STAGES.map((stage) => ({ name: stage, color: colours[stage], dash: true, value: count(countOf(totals.stages, stage)), figure: `stage_${stage}`, raw: countOf(totals.stages, stage) })),
      summary: `Trajectories a window by stage. So far ${STAGES.map((stage) => `${countOf(totals.stages, stage)} ${stage}`).join(", ")}.`,
      caption: "Lines: a window. Numbers beside the names: so far.",
      table: byWindow(slots, lines.map(({ stage, data }) => ({ name: stage, data }))),
    };
  },
};

export const failures = {
  id: "failures",
  title: "Failures by stage",
  span: 6,
  scope: lastWindows,
  view(context) {
    const { colours, snapshot } = context;
    const lines = [
      { id: "generation", name: "generation", color: colours.generated, of: (one) => countOf(one.failures, "generation") },
      { id: "reward", name: "reward", color: colours.reward, of: (one) => countOf(one.failures, "reward") },
    ];
    const causes = (snapshot?.failures ?? []).slice(0, 6).map(({ stage, cause, count: n }) => `${stage}: ${words(cause)} ${count(n)}`);
    const caption = causes.length ? `So far ${causes.join(", ")}.` : "A failure is no reward of 0.";
    return stacked(context, lines, { unit: "failure", empty: "Nothing failed in these windows.", caption });
  },
};

function stacked({ slots, colours }, lines, { unit, empty, caption }) {
  const filled = lines.map((line) => ({ ...line, data: slots.at.map((one) => (one === null ? 0 : line.of(one))) }));
  const sums = filled.map(({ data }) => data.reduce((sum, n) => sum + n, 0));
  const legend = filled.map(({ id, name, color }, i) => ({ name, color, value: count(sums[i]), figure: `window_${id}`, raw: sums[i] }));
  if (sums.every((n) => n === 0)) return { empty, caption };
  const lineOf = (one) => [one.seriesName, count(one.value), one.color];
  return {
    option: {
      ...base(colours, (points) => tip(slotTitle(slots, points[0].dataIndex), points.filter(({ value }) => value > 0).map(lineOf))),
      xAxis: timeAxis(colours, slots),
      yAxis: values(colours, { name: `${unit}s a window` }),
      series: filled.map(({ id, name, color, data }) => bars(id, name, data, color)),
    },
    legend,
    summary: `Bars over time. In the windows shown: ${filled.map(({ name }, i) => `${sums[i]} ${name}`).join(", ")}.`,
    caption,
    table: byWindow(slots, filled),
  };
}

function refusalsSoFar({ refusals: all }, colours) {
  const sorted = [...all].sort((a, b) => b.count - a.count).slice(0, 12);
  if (sorted.length === 0) return { empty: "Nothing was refused so far." };
  const label = ({ record_type: of, reason }) => `${of}: ${words(reason)}`;
  const upwards = sorted.toReversed();
  return {
    option: {
      ...base(colours, ([one]) => tip(label(upwards[one.dataIndex]), [["refused", count(one.value)]])),
      xAxis: { ...values(colours), name: "" },
      yAxis: { type: "category", data: upwards.map((one) => short(label(one), 32)), axisTick: { show: false }, axisLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.muted, fontSize: 11 } },
      series: [bars("refused", "refused", upwards.map((one) => ({ value: one.count, itemStyle: { color: reasonColour(colours, one.reason) } })), colours.refused, { barMaxWidth: 16 })],
    },
    summary: `Refusals so far: ${sorted.map((one) => `${label(one)} ${one.count}`).join(", ")}.`,
    caption: "Of Reserve and Admit rows are counted, elsewhere records. The newest windows: the other view.",
    table: { head: ["Record", "Reason", "Refused"], numeric: [2], rows: sorted.map((one) => [one.record_type, one.reason, count(one.count)]) },
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

function byWindow(slots, lines) {
  const rows = [];
  for (let i = slots.at.length - 1; i >= 0; i -= 1) {
    if (slots.at[i] !== null) rows.push([slotTitle(slots, i), ...lines.map(({ data }) => count(data[i]))]);
  }
  return { head: ["Window", ...lines.map(({ name }) => name)], numeric: lines.map((_, i) => i + 1), rows };
}
