// Light, dark or the system's: kept in the browser; charts read their colours from the same custom properties.

import { el } from "./dom.js";

const KEY = "rollbook-theme";
const ORDER = ["system", "light", "dark"];
const GLYPHS = { system: "◐", light: "☀", dark: "☾" };
const COLOURS = [
  ...["ink", "muted", "line", "grid", "surface", "raised", "accent", "limit"],
  ...["fresh", "tolerated", "expiring", "stale", "future", "unknown"],
  ...["admitted", "refused", "dispatched", "generated", "rewarded", "reserved", "consumed", "discarded", "reward"],
  ...["heat-0", "heat-1", "heat-2", "heat-3", "heat-4"],
  ...Array.from({ length: 8 }, (_, i) => `other-${i}`),
];
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The button that changes the theme; `changed` is called after each change, the system's included. */
export function themeButton(changed) {
  const glyph = el("span", { "aria-hidden": "true" });
  const label = el("span", { class: "wide-only" });
  const button = el("button", { type: "button", class: "quiet", id: "theme", on: { click: next } }, glyph, " ", label);
  show();
  dark.addEventListener("change", changed);
  return button;

  function next() {
    const to = ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length];
    if (to === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = to;
    try {
      if (to === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, to);
    } catch {
      // Not kept, then; it holds until the page is left.
    }
    show();
    changed();
  }

  function show() {
    const now = chosen();
    glyph.textContent = GLYPHS[now];
    label.textContent = now[0].toUpperCase() + now.slice(1);
    button.setAttribute("aria-label", `Theme: ${now}. Change it.`);
    button.title = `Theme: ${now}`;
  }
}

/** Paper is light, whatever the screen is: `before` draws for it, `after` for the screen again. */
export function onPaper(before, after) {
  let kept;
  addEventListener("beforeprint", () => {
    kept = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    before();
  });
  addEventListener("afterprint", () => {
    if (kept === undefined) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = kept;
    after();
  });
}

const chosen = () => document.documentElement.dataset.theme ?? "system";

/** The colours of the theme, by the names of the custom properties (`--fresh` is `fresh`). */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
