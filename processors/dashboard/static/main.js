// Starts the page: the address says what is looked at, the stream brings frames, and each second what is due is drawn.

import { SIZES, SIZE_NAMES, go, read } from "./address.js";
import { banners, connection, standing } from "./banner.js";
import { board } from "./board.js";
import { admission, failures } from "./charts/admission.js";
import { Card } from "./charts/card.js";
import { drift, driftFloor } from "./charts/drift.js";
import { heat } from "./charts/heat.js";
import { consumed, queue } from "./charts/queue.js";
import { refusals } from "./charts/refusals.js";
import { throughput } from "./charts/throughput.js";
import { took } from "./charts/took.js";
import { updates } from "./charts/updates.js";
import { chooser, sizeChooser } from "./chooser.js";
import { decisions } from "./decisions.js";
import { el } from "./dom.js";
import { many, zone } from "./format.js";
import { Heading } from "./heading.js";
import { message } from "./message.js";
import { isNoRun } from "./runs.js";
import { Store } from "./state.js";
import { Stream } from "./stream.js";
import { plain, short } from "./text.js";
import { onPaper, palette, themeButton } from "./theme.js";
import { tiles } from "./tiles.js";
import { trajectoryView } from "./trajectory.js";
import { Way } from "./way.js";

const $ = (id) => document.getElementById(id);
const SECTIONS = [
  ["Staleness", [heat, queue, consumed, admission]],
  ["Refusals, failures and drift", [refusals, failures, drift, driftFloor]],
  ["Flow", [throughput, took]],
];
const NARROW = matchMedia("(max-width: 40rem)");
const TICK_MS = 1000;

const store = new Store();
const page = {
  frame: null,
  frameAt: null,
  trouble: "",
  troubleAt: 0,
  answered: false, // Whether it is the dashboard that says what the trouble is.
  paused: false,
  resumedAt: -Infinity,
  shared: 0,
  refused: null, // The run in the address, if there can be none of that name.
};
let view = read();
let colours = palette();
let due = 0;
let drawnAt = -Infinity;

const runChooser = chooser((run) => go({ ...view, run, trajectory: "" }));
const sizeButtons = sizeChooser(SIZES, SIZE_NAMES, (size) => go({ ...view, size }));
const headline = tiles();
const cards = new Map();
const activation = board();
const recent = decisions(() => view);
const history = trajectoryView($("trajectory"));
const way = new Way();
const heading = new Heading();
const dot = connection($("connection"));
const showBanners = banners($("banners"));
const showMessage = message($("message"));
const stream = new Stream({ frame: take, trouble, refused, paused, shared });

build();
follow();
setInterval(stand, TICK_MS);

function build() {
  $("chooser").replaceWith(runChooser.node);
  $("sizes").replaceWith(sizeButtons.node);
  $("theme-place").replaceWith(themeButton(recolour));
  $("skip").addEventListener("click", (event) => {
    event.preventDefault(); // The address is ours: it says the run.
    $("main").focus();
  });
  const card = (chart) => {
    cards.set(chart.id, new Card(chart));
    return cards.get(chart.id).node;
  };
  const section = (title, ...nodes) => [el("h2", { text: title }), el("div", { class: "grid" }, ...nodes)];
  $("figures").append(
    heading.node,
    headline.node,
    ...SECTIONS.flatMap(([title, charts]) => section(title, ...charts.map(card))),
    ...section("Updates and policies", card(updates), activation.node),
    ...section("Decisions", recent.node),
  );
  addEventListener("hashchange", follow);
  NARROW.addEventListener("change", redraw);
  onPaper(() => {
    recolour();
    for (const card of cards.values()) card.draw({ unseen: true });
  }, recolour);
}

/** Looks at what the address says. */
function follow() {
  const before = view;
  view = read();
  sizeButtons.draw(view.size);
  if (page.refused?.run !== view.run) page.refused = null;
  stream.open(page.refused ? "" : view.run, view.size);
  if (view.trajectory) void history.show(view);
  else history.leave();
  if (before.run !== view.run || before.size !== view.size) store.forget();
  const moved = before.trajectory !== view.trajectory;
  if (moved && !before.trajectory) way.leave();
  redraw();
  if (moved && view.trajectory) way.arrive($("trajectory-title"));
  else if (moved) way.back($("main"));
  drawnAt = -Infinity; // The frame that was just asked for waits for nothing.
}

function take(frame, first) {
  page.frame = frame;
  page.frameAt = performance.now();
  page.trouble = "";
  store.take(frame, first);
  const runs = frame.runs.runs;
  const usual = runs.find((one) => !isNoRun(one.run_id));
  if (!view.run && usual) {
    go({ ...view, run: usual.run_id }, { replace: true });
    return;
  }
  if (page.refused && runs.some((one) => one.run_id === view.run)) {
    page.refused = null; // Somebody else refused it: a proxy, while the dashboard was away.
    stream.open(view.run, view.size);
  }
  // Drawn once a second at most, the first after a pause at once.
  const wait = drawnAt + TICK_MS - performance.now();
  if (wait <= 0) redraw();
  else due ||= setTimeout(redraw, wait);
}

function trouble(text, answered) {
  if (!page.trouble) page.troubleAt = performance.now();
  page.trouble = plain(text);
  page.answered = answered;
  stand();
}

/** No run can have that name: the list of runs is followed instead. */
function refused(text) {
  page.refused = { run: view.run, text: plain(text) };
  page.trouble = "";
  stream.open("", view.size);
}

function paused(is) {
  page.paused = is;
  if (!is) page.resumedAt = performance.now();
  stand();
}

function shared(others) {
  if (page.shared === others) return;
  page.shared = others;
  stand();
}

function recolour() {
  colours = palette();
  for (const card of cards.values()) card.recolour();
  redraw();
}

/** What does not need a frame: how old everything is. */
function stand() {
  page.standing = standing(page);
  document.body.dataset.standing = page.standing;
  dot(page);
  showBanners(page);
  if (page.frame === null) show();
  else if (store.now !== null)
    heading.draw(store.now.run, page.frame.status.now_ms + performance.now() - page.frameAt, page.standing);
}

function redraw() {
  clearTimeout(due);
  due = 0;
  drawnAt = performance.now();
  stand();
  show();
  const frame = page.frame;
  if (frame === null) return;
  runChooser.draw(frame.runs, view.run, frame.status.now_ms);
  foot(frame.status);
  if (document.body.dataset.view === "figures") figures(frame);
}

/** Which of the parts is to be seen. */
function show() {
  const which = part();
  document.body.dataset.view = which;
  for (const id of ["loading", "message", "figures", "trajectory"]) $(id).hidden = id !== which;
  if (which === "message") showMessage(page, view);
  const about = which === "trajectory" ? [view.trajectory, view.run] : [view.run];
  document.title = [...about.filter(Boolean).map((text) => short(text, 80)), "rollbook"].join(" · ");
}

function part() {
  if (view.trajectory && view.run) return "trajectory";
  if (store.now !== null && !page.refused) return "figures";
  if (page.frame === null) return page.standing === "unreachable" ? "message" : "loading";
  // A frame for another run may still be the last one.
  return store.frame === null ? "loading" : "message";
}

function figures(frame) {
  const now = store.now;
  headline.draw(store);
  const context = {
    slots: store.slots(NARROW.matches ? 120 : 360),
    snapshot: now.snapshot,
    totals: now.totals,
    now,
    nowMs: frame.status.now_ms,
    colours,
  };
  for (const card of cards.values()) {
    card.show(context);
    card.draw();
  }
  activation.draw(store);
  recent.draw(store);
}

function foot(status) {
  const text = `rollbook ${status.version} · topics ${status.topic_prefix}* · times in ${zone} · so far: since the run's first decision`;
  const skipped = status.unreadable ? `◆ ${many(status.unreadable, "record")} could not be read, and ${status.unreadable === 1 ? "was" : "were"} skipped` : "";
  $("footer").replaceChildren(
    el("span", { text: plain(text) }),
    " · ",
    el("a", { href: "/api/openapi.json" }, "API"),
    ...(skipped ? [" · ", el("span", { class: "mark-inline", data: { figure: "unreadable" }, text: skipped })] : []),
  );
}
