// The ready queue by freshness, and the lags of what was consumed.

import { count, many } from "../format.js";
import { total } from "../state.js";
import { atPresent, bars, base, categories, limitLine, soFar, tip, values } from "./base.js";
import { byLag, freshnessOf, lagName, lagRange, limitPlace } from "./lags.js";

const KINDS = [
  ["fresh", "fresh", "lag 0"],
  ["tolerated", "tolerated", "below the limit"],
  ["expiring", "expiring", "at the limit"],
  ["stale", "stale", "above the limit"],
  ["future", "future", "ahead of the active policy"],
  ["unknown", "unknown", "a policy is not prepared"],
];

/** Expiring is a part of the tolerated, or of the fresh where nothing else is tolerated. */
function parts(snapshot) {
  const { ready_fresh: fresh, ready_tolerated: tolerated, ready_expiring: expiring, max_lag: maxLag } = snapshot;
  return {
    fresh: maxLag === 0 ? fresh - expiring : fresh,
    tolerated: maxLag === 0 ? tolerated : tolerated - expiring,
    expiring,
    stale: snapshot.ready_stale,
    future: snapshot.ready_future,
    unknown: snapshot.ready_unknown,
  };
}

export const queue = {
  id: "queue",
  title: "Ready queue by freshness",
  span: 4,
  height: "tall",
  scope: atPresent,
  view({ snapshot, colours }) {
    if (snapshot === null) return { empty: "No freshness snapshot was read yet." };
    const counts = parts(snapshot);
    const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
    const lags = snapshot.ready_by_lag.map(({ lag, count: n }) => ({ at: lag, count: n }));
    if (all === 0)
      return {
        empty: "Nothing is ready: the trainer waits.",
        caption: "Rewarded and not reserved; evaluation never counts.",
      };
    const range = lagRange(
      lags.map(({ at }) => at),
      snapshot.max_lag,
      14,
    );
    const rows = byLag(range, lags);
    const names = rows.map((_, i) => lagName(range, i, snapshot.max_lag));
    return {
      option: {
        ...base(colours, ([one]) =>
          tip(`lag ${one.name}`, [[freshnessOf(range.low + one.dataIndex, snapshot.max_lag), many(one.value, "row")]]),
        ),
        xAxis: values(colours),
        yAxis: categories(colours, names, { inverse: false }),
        series: [
          bars(
            "ready",
            "ready",
            rows.map((n, i) => ({
              value: n,
              itemStyle: { color: colours[freshnessOf(range.low + i, snapshot.max_lag)] },
            })),
            colours.fresh,
            { barMaxWidth: 22 },
          ),
          ...limit(colours, "y", range, snapshot.max_lag, "stale above"),
        ],
      },
      legend: KINDS.filter(([kind]) => counts[kind] || ["fresh", "tolerated", "expiring", "stale"].includes(kind)).map(
        ([kind, label]) => ({
          name: label,
          color: colours[kind],
          value: count(counts[kind]),
          figure: `queue_${kind}`,
          raw: counts[kind],
        }),
      ),
      summary: `${many(all, "row")} ready: ${KINDS.map(([kind]) => `${counts[kind]} ${kind}`).join(", ")}.`,
      caption: `Rows by lag. Expiring, at lag ${snapshot.max_lag}, is stale with the next activation.`,
      table: {
        head: ["Freshness", "What", "Rows"],
        numeric: [2],
        rows: KINDS.map(([kind, label, what]) => [label, what, count(counts[kind])]),
      },
    };
  },
};

export const consumed = {
  id: "consumed-lag",
  title: "Lag of what was consumed",
  span: 4,
  scope: soFar,
  view({ totals, snapshot, colours }) {
    const lags = totals.consumed_by_lag;
    if (total(lags) === 0) return { empty: "Nothing was consumed yet." };
    const maxLag = snapshot?.max_lag ?? 0;
    const range = lagRange(
      lags.map(({ at }) => at),
      maxLag,
      20,
    );
    const rows = byLag(range, lags);
    const names = rows.map((_, i) => lagName(range, i, maxLag));
    const unknown = snapshot?.consumed_lag_unknown ?? 0;
    return {
      option: {
        ...base(colours, ([one]) => tip(`lag ${one.name}`, [["consumed", many(one.value, "row")]])),
        xAxis: categories(
          colours,
          names.map((text) => text.replace(" limit", "")),
        ),
        yAxis: values(colours),
        series: [
          bars(
            "consumed",
            "consumed",
            rows.map((n, i) => ({ value: n, itemStyle: { color: colours[freshnessOf(range.low + i, maxLag)] } })),
            colours.fresh,
            { barMaxWidth: 48 },
          ),
          ...limit(colours, "x", range, maxLag, `limit ${maxLag}`),
        ],
      },
      summary: `Consumed rows by lag: ${lags.map(({ at, count: n }) => `${n} at ${at}`).join(", ")}.`,
      caption: `Rows by the lag at which they were last judged.${unknown ? ` ${many(unknown, "row")} consumed without having been judged.` : ""}`,
      table: {
        head: ["Lag", "Freshness", "Rows"],
        numeric: [0, 2],
        rows: lags.map(({ at, count: n }) => [String(at), freshnessOf(at, maxLag), count(n)]),
      },
    };
  },
};

/** The line of the limit, where it is in sight. */
function limit(colours, axis, range, maxLag, label) {
  const place = limitPlace(range, maxLag);
  return place === null ? [] : [limitLine(colours, axis, place, range.length, label)];
}
