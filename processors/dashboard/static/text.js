// Shows names and reasons of other people's making: invisible and reordering characters become visible, long ones short.

import { el } from "./dom.js";

// Controls, soft hyphen, zero-width and joining characters, bidi marks, overrides and isolates, tags, variation selectors.
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const STACKED = /(\p{M}{2})\p{M}+/gu;
const LONGEST_TITLE = 600;

/** The text with nothing hidden in it; of towers of combining marks the first two. */
export function plain(text) {
  return String(text)
    .replace(HIDDEN, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(STACKED, "$1");
}

/** The same, at most so long: beginning and end, since ids often differ in their ends. */
export function short(text, most = 40) {
  const letters = [...plain(text)];
  if (letters.length <= most) return letters.join("");
  const tail = Math.floor((most - 1) / 3);
  return `${letters.slice(0, most - 1 - tail).join("")}…${letters.slice(letters.length - tail).join("")}`;
}

/** A name as an element of its own direction, whole in its title. */
export function name(text, most = 40, props = {}) {
  const shown = short(text, most);
  const whole = plain(text);
  const title = whole === shown ? null : short(whole, LONGEST_TITLE);
  return el("bdi", { class: "name", text: shown, title, ...props });
}

/** The beginning of a hash. */
export function hash(text) {
  return name(text.replace(/^sha256:/, ""), 10, { class: "name hash", title: short(text, LONGEST_TITLE) });
}
