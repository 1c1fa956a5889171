// Drift of judged rows against the threshold, and the drift floor (at lag 0: engine mismatch) by version.

import { count, many, nats } from "../format.js";
import { bars, base, categories, limitLine, soFar, tip, values } from "./base.js";
import { DRIFT_NATS, between } from "./bins.js";

export const drift = {
  id: "drift",
  title: "Drift at the gate",
  span: 6,
  scope: soFar,
  view({ totals, snapshot, colours }) {
    const bins = totals.drift;
    if (bins.length === 0) return { empty: "No row was judged yet." };
    const threshold = snapshot?.max_mean_abs_log_ratio ?? 0;
    const bounds = binBounds(bins, threshold);
    const last = bins.find((one) => one.up_to === null);
    const at = (bound) => bins.find((one) => one.up_to === bound);
    const all = [...bounds.map(at), ...(last ? [last] : [])];
    const names = [...bounds.map(nats), ...(last ? [`> ${nats(bounds.at(-1) ?? 0)}`] : [])];
    const sum = (field) => bins.reduce((n, one) => n + one[field], 0);
    const title = (i) => (i < bounds.length ? `up to ${names[i]} nats` : `${names[i]} nats`);
    const gate = snapshot?.drift_gate ?? "";
    return {
      option: {
        ...base(colours, (points) =>
          tip(
            title(points[0].dataIndex),
            points.map((one) => [one.seriesName, many(one.value, "row"), one.color]),
          ),
        ),
        xAxis: categories(colours, names),
        yAxis: values(colours),
        series: [
          bars(
            "admitted",
            "admitted",
            all.map((one) => one?.admitted ?? 0),
            colours.admitted,
          ),
          bars(
            "refused",
            "refused for drift",
            all.map((one) => one?.refused ?? 0),
            colours.refused,
          ),
          ...(threshold > 0
            ? [limitLine(colours, "x", place(bounds, threshold), names.length, `threshold ${nats(threshold)}`)]
            : []),
        ],
      },
      legend: [
        {
          name: "admitted",
          color: colours.admitted,
          value: count(sum("admitted")),
          figure: "drift_admitted",
          raw: sum("admitted"),
        },
        {
          name: "refused for drift",
          color: colours.refused,
          value: count(sum("refused")),
          figure: "drift_refused",
          raw: sum("refused"),
        },
      ],
      summary: `Rows by drift: ${sum("admitted")} admitted, ${sum("refused")} refused; threshold ${nats(threshold)} nats.`,
      caption: `Rows by their mean |current − behavior| in nats; upper bounds of bins.${gate === "off" ? " The gate is off: drift is recorded, nothing is refused for it." : ""}`,
      table: {
        head: ["Up to (nats)", "Admitted", "Refused"],
        numeric: [0, 1, 2],
        rows: bins.map((one) => [
          one.up_to === null ? "above" : nats(one.up_to),
          count(one.admitted),
          count(one.refused),
        ]),
      },
    };
  },
};

export const driftFloor = {
  id: "drift-floor",
  title: "Drift floor by version",
  span: 6,
  scope: ({ snapshot }) => (snapshot?.figures_since ? `since decision ${count(snapshot.figures_since)}` : "so far"),
  view({ snapshot, colours }) {
    const floor = snapshot?.drift_floor ?? [];
    if (floor.length === 0)
      return {
        empty: "No row was judged at lag 0 yet.",
        caption: "There the weights are the same: what remains is engine against trainer.",
      };
    const threshold = snapshot.max_mean_abs_log_ratio;
    const most = Math.max(...floor.map((one) => one.mean_abs_log_ratio));
    const reached = threshold > 0 && threshold <= most * 2;
    const lineTip = ([one]) =>
      tip(`version ${floor[one.dataIndex].version}`, [
        ["mean", `${nats(floor[one.dataIndex].mean_abs_log_ratio)} nats`],
        ["judged at lag 0", many(floor[one.dataIndex].rows, "row")],
      ]);
    return {
      option: {
        ...base(colours, lineTip),
        xAxis: categories(
          colours,
          floor.map((one) => `v${one.version}`),
        ),
        yAxis: values(colours, {
          minInterval: 0,
          max: reached ? (scale) => Math.max(scale.max, threshold) * 1.05 : null,
          axisLabel: { color: colours.muted, fontSize: 11, formatter: nats },
        }),
        series: [
          {
            id: "floor",
            name: "drift at lag 0",
            type: "line",
            data: floor.map((one) => one.mean_abs_log_ratio),
            symbol: "circle",
            symbolSize: floor.length > 30 ? 4 : 7,
            color: colours.accent,
            lineStyle: { width: 2 },
            emphasis: { disabled: true },
            markLine: reached
              ? {
                  silent: true,
                  symbol: "none",
                  data: [{ yAxis: threshold }],
                  label: {
                    formatter: `threshold ${nats(threshold)}`,
                    position: "insideStartTop",
                    color: colours.limit,
                    fontWeight: 600,
                  },
                  lineStyle: { color: colours.limit, type: "dashed", width: 1.5 },
                }
              : undefined,
          },
        ],
      },
      summary: `Drift at lag 0 by version, newest ${nats(floor.at(-1).mean_abs_log_ratio)} nats at version ${floor.at(-1).version}.`,
      caption:
        "Mean |current − behavior| in nats of rows judged at lag 0: the weights are the same, so this is engine against trainer. A jump after a weight sync is a fault of the sync.",
      table: {
        head: ["Version", "Rows", "Mean (nats)"],
        numeric: [0, 1, 2],
        rows: floor.toReversed().map((one) => [`v${one.version}`, count(one.rows), nats(one.mean_abs_log_ratio)]),
      },
    };
  },
};

function binBounds(bins, threshold) {
  const given = bins.map((one) => one.up_to).filter((bound) => bound !== null);
  // The threshold is shown also where no row came near it, with the bin above it.
  const at = DRIFT_NATS.findIndex((bound) => threshold <= bound);
  const around = threshold > 0 && at >= 0 ? DRIFT_NATS.slice(at, at + 2) : [];
  return between(DRIFT_NATS, [...given, ...around]);
}

/** Where the threshold lies, as a fraction of bins; inside a bin by its logarithm. */
function place(bounds, threshold) {
  const i = bounds.findIndex((bound) => threshold <= bound);
  if (i < 0) return bounds.length - 1;
  const low = i > 0 ? bounds[i - 1] : bounds[i] / 2;
  return i - 1 + Math.log(threshold / low) / Math.log(bounds[i] / low);
}
