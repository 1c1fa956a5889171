// Time from generation to consumption: histogram so far, and mean over time.

import { count, decimal, many, span } from "../format.js";
import { bars, base, categories, lastWindows, slotTitle, soFar, timeAxis, tip, values } from "./base.js";
import { TOOK_S, between } from "./bins.js";

export const took = {
  id: "took",
  title: "Generation to consumption",
  span: 6,
  height: "tall",
  modes: [
    ["bins", "Histogram"],
    ["mean", "Mean over time"],
  ],
  scope: (context, mode) => (mode === "mean" ? lastWindows(context) : soFar(context)),
  view(context, mode) {
    return mode === "mean" ? mean(context) : bins(context);
  },
};

function bins({ totals, colours }) {
  const all = totals.took;
  if (totals.took_count === 0) return { empty: "Nothing was consumed yet whose generation's time is known." };
  const given = all.map((one) => one.up_to_s).filter((bound) => bound !== null);
  const bounds = between(TOOK_S, given);
  const last = all.find((one) => one.up_to_s === null);
  const at = (bound) => all.find((one) => one.up_to_s === bound)?.count ?? 0;
  const names = [...bounds.map(tick), ...(last ? [`> ${tick(bounds.at(-1) ?? 0)}`] : [])];
  const average = totals.took_sum_s / totals.took_count;
  return {
    option: {
      ...base(colours, ([one]) =>
        tip(one.dataIndex < bounds.length ? `up to ${one.name}` : one.name, [["consumed", many(one.value, "row")]]),
      ),
      xAxis: categories(colours, names),
      yAxis: values(colours),
      series: [bars("took", "consumed", [...bounds.map(at), ...(last ? [last.count] : [])], colours.consumed)],
    },
    legend: [
      {
        name: "consumed",
        color: colours.consumed,
        value: count(totals.took_count),
        figure: "took_count",
        raw: totals.took_count,
      },
      { name: "mean", color: "transparent", value: span(average), figure: "took_mean_s", raw: average },
    ],
    summary: `Time from generation to consumption: mean ${span(average)} over ${many(totals.took_count, "row")}.`,
    caption: "Rows by the time from Generated to Commit; upper bounds of bins.",
    table: {
      head: ["Up to", "Rows"],
      numeric: [0, 1],
      rows: all.map((one) => [one.up_to_s === null ? "above" : span(one.up_to_s), count(one.count)]),
    },
  };
}

function mean({ slots, colours }) {
  const data = slots.at.map((one) => (one?.took_count ? one.took_sum_s / one.took_count : null));
  if (data.every((value) => value === null)) return { empty: "Nothing was consumed in these windows." };
  const newest = data.findLast((value) => value !== null);
  const shown = ([one]) =>
    tip(
      slotTitle(slots, one.dataIndex),
      one.value === undefined || one.value === null
        ? []
        : [
            ["mean", span(one.value)],
            ["consumed", many(slots.at[one.dataIndex].took_count, "row")],
          ],
    );
  return {
    option: {
      ...base(colours, shown),
      xAxis: timeAxis(colours, slots),
      yAxis: values(colours, { minInterval: 0 }),
      series: [
        {
          id: "mean",
          name: "mean",
          type: "line",
          data,
          connectNulls: true,
          showSymbol: data.filter((value) => value !== null).length < 60,
          symbol: "circle",
          symbolSize: 5,
          color: colours.consumed,
          lineStyle: { width: 2 },
          emphasis: { disabled: true },
        },
      ],
    },
    summary: `Mean time from generation to consumption over time; in the newest window with a commit ${span(newest)}.`,
    caption: "Seconds, mean over what was consumed in each window.",
    table: {
      head: ["Window", "Mean (s)", "Rows"],
      numeric: [1, 2],
      rows: data
        .map((value, i) => [slotTitle(slots, i), decimal(value, 3), count(slots.at[i]?.took_count ?? 0)])
        .filter((_, i) => data[i] !== null)
        .reverse(),
    },
  };
}

const tick = (seconds) => (seconds < 1 ? `${decimal(seconds * 1000, 3)} ms` : span(seconds));
