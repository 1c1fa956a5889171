// Staleness over time: lag or behavior version against time, colour by count.

import { count, many } from "../format.js";
import { base, categories, lastWindows, limitLine, slotTitle, timeAxis, tip } from "./base.js";
import { lagName, lagRange, limitPlace } from "./lags.js";

const MOST = 24;
const MOST_LABELS = 13;
const FIELDS = { judged: "judged_by_lag", ready: "ready_by_lag", version: "ready_by_version" };
const OF = {
  judged: "rows that Admit judged, by lag",
  ready: "rows ready to train on, by lag, at the end of each window",
  version: "rows ready to train on, by oldest behavior version, at the end of each window",
};

export const heat = {
  id: "heat",
  title: "Staleness over time",
  span: 8,
  height: "tall",
  scope: lastWindows,
  modes: [
    ["judged", "Judged by lag"],
    ["ready", "Ready by lag"],
    ["version", "Ready by version"],
  ],
  view({ slots, snapshot, colours }, mode) {
    const rowsOf = (one) => one?.[FIELDS[mode]] ?? [];
    const seen = slots.at.flatMap((one) => rowsOf(one).map(({ at }) => at));
    if (seen.length === 0)
      return {
        empty: mode === "judged" ? "No row was judged in these windows." : "No snapshot of these windows is kept.",
      };
    const maxLag = snapshot?.max_lag ?? 0;
    const lines = mode === "version" ? versions(seen) : lags(seen, maxLag);
    const cells = new Map();
    for (const [slot, one] of slots.at.entries()) {
      for (const { at, count: n } of rowsOf(one)) {
        const key = slot * MOST + lines.place(at);
        cells.set(key, (cells.get(key) ?? 0) + n);
      }
    }
    const data = [...cells].map(([key, n]) => [Math.floor(key / MOST), key % MOST, n, Math.sqrt(n)]);
    const most = data.reduce((max, [, , n]) => Math.max(max, n), 0);
    const what = mode === "version" ? "version" : "lag";
    return {
      option: {
        ...base(
          colours,
          ({ data: [slot, line, n] }) =>
            tip(slotTitle(slots, slot), [[`${what} ${lines.names[line]}`, many(n, "row")]]),
          { top: 8, right: 64 },
        ),
        tooltip: {
          ...base(colours, ({ data: [slot, line, n] }) =>
            tip(slotTitle(slots, slot), [[`${what} ${lines.names[line]}`, many(n, "row")]]),
          ).tooltip,
          trigger: "item",
        },
        xAxis: timeAxis(colours, slots),
        yAxis: categories(colours, lines.names, {
          axisLabel: { color: colours.muted, fontSize: 11, interval: Math.ceil(lines.names.length / MOST_LABELS) - 1 },
        }),
        visualMap: {
          type: "continuous",
          seriesIndex: 0,
          min: 0,
          max: Math.sqrt(most),
          dimension: 3,
          calculable: false,
          hoverLink: false,
          right: 4,
          top: "middle",
          itemWidth: 10,
          itemHeight: 110,
          text: [count(most), "0"],
          textStyle: { color: colours.muted, fontSize: 11 },
          inRange: { color: [0, 1, 2, 3, 4].map((i) => colours[`heat-${i}`]) },
        },
        series: [
          {
            id: "cells",
            type: "heatmap",
            data,
            progressive: 0,
            itemStyle: { borderColor: colours.surface, borderWidth: slots.starts.length > 120 ? 0 : 0.5 },
            emphasis: { disabled: true },
          },
          ...(lines.limit === null ? [] : [limitLine(colours, "y", lines.limit, lines.names.length, "stale above")]),
        ],
      },
      summary: `Heat map over time of ${OF[mode]}. ${latest(slots, rowsOf, what)}`,
      caption: `Colour: ${OF[mode]}. ${mode === "judged" ? "" : "Empty columns: no snapshot of that window is kept. "}${mode === "version" ? "" : "The limit is that of now."}`,
      table: {
        head: ["Window", what === "lag" ? "Lag" : "Version", "Rows"],
        numeric: [1, 2],
        rows: listed(slots, rowsOf),
      },
    };
  },
};

function lags(seen, maxLag) {
  const range = lagRange(seen, maxLag, MOST);
  const names = Array.from({ length: range.length }, (_, i) => lagName(range, i, maxLag));
  const place = (lag) => Math.max(0, Math.min(range.length - 1, lag - range.low));
  return { names, place, limit: limitPlace(range, maxLag) };
}

function versions(seen) {
  const high = Math.max(...seen);
  const low = Math.max(Math.min(...seen), high - MOST + 1);
  const older = Math.min(...seen) < low ? "≤ " : "";
  const names = Array.from({ length: high - low + 1 }, (_, i) => `${i === 0 ? older : ""}v${low + i}`);
  return { names, place: (version) => Math.max(0, version - low), limit: null };
}

function latest(slots, rowsOf, what) {
  const last = slots.at.findLast((one) => rowsOf(one).length > 0);
  const worst = Math.max(...rowsOf(last).map(({ at }) => at));
  return what === "lag"
    ? `In the newest window the highest lag is ${worst}.`
    : `In the newest window the newest version is ${worst}.`;
}

function listed(slots, rowsOf) {
  const rows = [];
  for (let i = slots.at.length - 1; i >= 0; i -= 1) {
    for (const { at, count: n } of rowsOf(slots.at[i])) rows.push([slotTitle(slots, i), String(at), count(n)]);
  }
  return rows;
}
