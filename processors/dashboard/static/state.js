// What the page knows: the last frame, and the windows that all frames brought together.

export class Store {
  frame = null;
  series = null;
  #windows = new Map();

  /** Takes a frame. `first`: it is the first of a stream that was opened anew, and brings all windows. */
  take(frame, first) {
    const before = this.series;
    const next = frame.series;
    const other =
      first ||
      next === null ||
      before === null ||
      this.frame === null ||
      frame.status.instance !== this.frame.status.instance ||
      frame.now?.run.since !== this.now?.run.since || // It had given its place away, and is counted anew.
      next.run_id !== before.run_id ||
      next.size !== before.size ||
      next.revision < before.revision;
    if (other) this.#windows.clear();
    this.frame = frame;
    this.series = next;
    if (next === null) return;
    for (const one of next.windows) this.#windows.set(one.start_ms, one);
    const oldest = this.#newest() - (next.kept - 1) * next.size_ms;
    for (const start of this.#windows.keys()) if (start < oldest) this.#windows.delete(start);
  }

  /** Another run or length is asked for: what is here answers it no more. */
  forget() {
    this.frame = null;
    this.series = null;
    this.#windows.clear();
  }

  get now() {
    return this.frame?.now ?? null;
  }

  get snapshot() {
    return this.now?.snapshot ?? null;
  }

  /** The newest windows in order, without holes: `at[i]` is null where nothing happened from `starts[i]` on. */
  slots(most, least = 30) {
    const size = this.series?.size_ms ?? 0;
    if (!size || this.#windows.size === 0) return { size, starts: [], at: [] };
    const newest = this.#newest();
    const oldest = Math.min(...this.#windows.keys());
    const wanted = Math.max(least, (newest - oldest) / size + 1);
    const length = Math.min(most, Math.max(least, this.series.kept), wanted);
    const starts = Array.from({ length }, (_, i) => newest - (length - 1 - i) * size);
    return { size, starts, at: starts.map((start) => this.#windows.get(start) ?? null) };
  }

  #newest() {
    let newest = -Infinity;
    for (const start of this.#windows.keys()) if (start > newest) newest = start;
    return newest;
  }
}

/** How often `name` was, in a list of counts. */
export const countOf = (counts, name) => counts.find((one) => one.name === name)?.count ?? 0;

/** All of a list of counts together. */
export const total = (counts) => counts.reduce((sum, one) => sum + one.count, 0);

/** Rows that Reserve and Admit refused; elsewhere a refusal is a record's. */
export const rowsRefused = (refusals) =>
  total(refusals.filter(({ record_type: of }) => of === "Reserve" || of === "Admit"));
