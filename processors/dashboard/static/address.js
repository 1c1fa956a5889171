// The address keeps what is looked at: #run=RUN&size=10s, and &trajectory=ID for a trajectory's history.

export const SIZES = ["1s", "10s", "1m", "10m"];
export const SIZE_NAMES = { "1s": "1 s", "10s": "10 s", "1m": "1 min", "10m": "10 min" };
const USUAL = "10s";

/** What the address says. */
export function read(hash = location.hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const size = said.get("size") ?? USUAL;
  return {
    run: said.get("run") ?? "",
    size: SIZES.includes(size) ? size : USUAL,
    trajectory: said.get("trajectory") ?? "",
  };
}

/** The address of a view. */
export function link({ run, size, trajectory = "" }) {
  const said = new URLSearchParams();
  if (run) said.set("run", run);
  said.set("size", size);
  if (trajectory) said.set("trajectory", trajectory);
  return `#${said}`;
}

/** Goes to a view; `replace` leaves no trace in the history, for what the reader did not choose. */
export function go(view, { replace = false } = {}) {
  const to = link(view);
  if (to === location.hash) return;
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
