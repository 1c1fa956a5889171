// What a lag means against the limit, in the colours and words that all charts share.

/** fresh, tolerated, expiring, stale or future. */
export function freshnessOf(lag, maxLag) {
  if (lag < 0) return "future";
  if (lag > maxLag) return "stale";
  if (lag === maxLag) return "expiring";
  return lag === 0 ? "fresh" : "tolerated";
}

/** All lags from the lowest to the highest that is there, and the limit if it is not far off; of very many the lowest. */
export function lagRange(lags, maxLag, most = 24) {
  const low = Math.min(0, ...lags);
  const highest = Math.max(0, ...lags);
  const high = Math.max(highest, Math.min(maxLag + 1, highest + 4));
  const length = Math.min(most, high - low + 1);
  return { low, length, clipped: high - low + 1 > length };
}

/** The name of a lag in a range; the last may stand for more. */
export function lagName(range, i, maxLag) {
  const lag = range.low + i;
  const more = range.clipped && i === range.length - 1 ? "+" : "";
  return `${lag}${more}${lag === maxLag ? " limit" : ""}`;
}

/** Where the limit lies in a range; null: not in it. */
export function limitPlace(range, maxLag) {
  const place = maxLag - range.low;
  return place + 1 < range.length || (place + 1 === range.length && !range.clipped) ? place : null;
}

/** Counts by place in the range. */
export function byLag(range, counts) {
  const places = new Array(range.length).fill(0);
  for (const { at, count } of counts) places[Math.max(0, Math.min(range.length - 1, at - range.low))] += count;
  return places;
}
