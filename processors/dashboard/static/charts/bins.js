// The bins of the histograms, so that empty ones are seen as empty: answers leave them out. A test holds them to the fold's.

export const DRIFT_NATS = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10];
export const TOOK_S = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400];

/** All bounds from the lowest to the highest of those that are there; `there` may have others, of a newer server. */
export function between(bounds, there) {
  const low = Math.min(...there);
  const high = Math.max(...there);
  const all = new Set([...there, ...bounds.filter((bound) => bound >= low && bound <= high)]);
  return [...all].sort((a, b) => a - b);
}
