// Numbers and times as the page writes them: tabular, in the reader's time zone, with a dash for what is not known.

export const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clocks = {
  short: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" }),
  long: new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  day: new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" }),
  moment: new Intl.DateTimeFormat("en-GB", {
    day: "2-digit",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  }),
};

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** 12,345. */
export const count = (value) => (value === null || value === undefined ? NONE : whole.format(value));

/** 12.3K: for axes. */
export const roughly = (value) => (Math.abs(value) < 1000 ? String(value) : compact.format(value));

/** At most so many digits after the point. */
export function decimal(value, digits = 2) {
  return value === null || value === undefined ? NONE : String(Number(value.toFixed(digits)));
}

/** Nats need three significant digits: they range over five powers of ten. */
export function nats(value) {
  if (value === null || value === undefined) return NONE;
  return value === 0 ? "0" : String(Number(value.toPrecision(3)));
}

/** 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const s = Math.max(0, seconds);
  if (s < 10) return `${decimal(s, 1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const units = [
    [86_400, "d", 3_600, "h"],
    [3_600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ];
  const [big, bigName, small, smallName] = units.find(([size]) => s >= size);
  const rest = Math.floor((s % big) / small);
  return `${Math.floor(s / big)} ${bigName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** How long ago, never in the future. */
export const ago = (ms, nowMs) => (nowMs - ms < 1000 ? "just now" : `${span(Math.floor((nowMs - ms) / 1000))} ago`);

/** The same in whole minutes, from one on: for what need not change each second. */
export const minutes = (ms) => span(Math.max(1, Math.floor(ms / 60_000)) * 60);

/** The time of day; seconds only where windows are shorter than a minute, the day where they reach over days. */
export function clock(ms, sizeMs = 1000) {
  return clocks[sizeMs >= 600_000 ? "day" : sizeMs >= 60_000 ? "short" : "long"].format(ms);
}

/** Day and time. */
export const moment = (ms) => (ms === null || ms === undefined ? NONE : clocks.moment.format(ms));

/** A moment of the last hours by the time alone. */
export const lately = (ms, nowMs) => (nowMs - ms < 43_200_000 ? clocks.long : clocks.moment).format(ms);

/** "1 row", "2 rows". */
export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

/** reward_ready -> reward ready. */
export const words = (text) => text.replaceAll("_", " ");
