// What can be said of a run by its line in the list: whether it is one, since when it is counted, whether it stands still.

import { count } from "./format.js";

export const SILENT_MS = 60_000;

/** Records that are of no run are decided under names that no run can have. */
export const isNoRun = (run) => run.startsWith("~");

/** From where on it is counted. */
export const counted = ({ since }) => (since > 1 ? `since decision ${count(since)}` : "so far");

/** For how long nothing was decided of it, in ms; 0: something was lately, or nothing is due. */
export function silence(run, nowMs) {
  const silent = nowMs - run.last_ms;
  return run.closed || isNoRun(run.run_id) || run.since < 1 || silent < SILENT_MS ? 0 : silent;
}
