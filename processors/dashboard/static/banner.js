// Says how the page stands: the dot with "updated ... ago", and banners for all that makes the figures doubtful.

import { el, setText, whenChanged } from "./dom.js";
import { count, many, span } from "./format.js";
import { plain, short } from "./text.js";

const LATE_MS = 8_000; // A frame comes every 5 s at the latest.
const BROKEN_MS = 2_000; // A connection that is back within that time troubles nobody.

/** How fresh the page is: live, reading (the dashboard is not up to date), late (nothing came), paused (nobody looks). */
export function standing({ frameAt, trouble, troubleAt, frame, paused, resumedAt }, at = performance.now()) {
  if (paused || (frameAt !== null && frameAt < resumedAt && at - resumedAt < BROKEN_MS)) return "paused";
  if (frame === null) return trouble && at - troubleAt > BROKEN_MS ? "unreachable" : "loading";
  const silent = at - frameAt;
  if (silent > LATE_MS || (trouble && at - troubleAt > BROKEN_MS)) return "late";
  return (
    { live: "live", catching_up: "catching_up", cut_off: "cut_off", waiting: "waiting" }[frame.status.reading] ?? "live"
  );
}

const DOTS = {
  loading: ["◌", "Connecting"],
  unreachable: ["✕", "No connection"],
  paused: ["◌", "Paused while hidden"],
  late: ["✕", "No news"],
  live: ["●", "Live"],
  catching_up: ["◐", "Catching up"],
  cut_off: ["■", "Cut off"],
  waiting: ["◌", "Waiting"],
};

/** The dot with its words. */
export function connection(place) {
  const glyph = el("span", { class: "dot", "aria-hidden": "true" });
  const word = el("b");
  const update = el("span", { data: { figure: "last_update_s" } });
  place.append(glyph, word, " ", update);
  return ({ standing: how, frameAt }) => {
    place.dataset.standing = how;
    setText(glyph, DOTS[how][0]);
    setText(word, DOTS[how][1]);
    const seconds = frameAt === null ? null : Math.floor((performance.now() - frameAt) / 1000);
    setText(update, seconds === null ? "" : `updated ${seconds < 1 ? "just now" : `${span(seconds)} ago`}`);
    update.dataset.value = seconds ?? "";
  };
}

/** What is wrong, in the order in which it matters. */
export function banners(place) {
  const show = whenChanged((list) => place.replaceChildren(...list.map(banner)));
  return (page) => show(list(page));
}

function list({ standing: how, frame, frameAt, trouble, answered, shared }) {
  if (how === "loading" || how === "unreachable" || how === "paused") return []; // The message in place of the figures tells it.
  const status = frame.status;
  if (how === "late") {
    const seconds = Math.floor((performance.now() - frameAt) / 30_000) * 30; // Said anew by a screen reader each time.
    const since = seconds ? ` The figures below are at least ${span(seconds)} old.` : " The figures below may be old.";
    const title = trouble && answered ? "The dashboard answers with an error." : "No news from the dashboard.";
    return [["bad", title, `${trouble || "It has gone silent."}${since}`, "late"]];
  }
  if (how === "cut_off") {
    return [["bad", "Cut off from Kafka: what is shown was read before.", plain(status.fault), "cut_off"]];
  }
  // In place of the figures the message says the same, with a bar.
  if (how === "catching_up" && frame.now === null) return [];
  if (how === "catching_up") return [["note", "Catching up with the log.", progress(status), "catching_up"]];
  const said = [];
  if (window.echarts === undefined)
    said.push(["note", "No charts:", "what draws them was not loaded. Their tables stand in their place.", "no_charts"]);
  if (how === "live" && status.fault) said.push(["note", "Reading, but:", short(status.fault, 240), "fault"]);
  if (how === "live" && shared) said.push(["note", "One of many pages.", turns(shared), "shared"]);
  return said;
}

function banner([kind, title, text, state]) {
  return el(
    "div",
    { class: `banner banner-${kind}`, data: { banner: state } },
    el("strong", { text: title }),
    " ",
    el("span", { text }),
  );
}

const turns = (others) =>
  `${many(others, "other page")} of this browser ${others === 1 ? "shows" : "show"} the dashboard, and its connections do not suffice for all: this one is told every 5 s.`;

/** How far the reading is. */
export function progress({ records, behind }) {
  const left = behind === null ? "" : `, ${count(behind)} to go`;
  return `${count(records)} records read${left}. Figures grow until it has caught up.`;
}
