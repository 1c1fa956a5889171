// Chooses a run: a combobox that searches while one types (WAI-ARIA: list autocomplete, manual selection).

import { el, keyedRows, setText } from "./dom.js";
import { ago, count, many } from "./format.js";
import { isNoRun } from "./runs.js";
import { plain } from "./text.js";

const MOST = 200; // Rows shown; who has more runs types.

/** The chooser; `choose(run)` is called for what the reader picks. `draw(runs, run, nowMs)` fills it. */
export function chooser(choose) {
  let runs = [];
  let leftOut = 0;
  let current = "";
  let nowMs = 0;
  let at = -1;
  const list = el("ul", { id: "run-list", role: "listbox", "aria-label": "Runs", hidden: true });
  const note = el("p", { class: "run-note", hidden: true });
  const input = el("input", {
    id: "run",
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Choose a run",
    "aria-expanded": "false",
    "aria-controls": "run-list",
    "aria-autocomplete": "list",
    on: { focus: () => input.select(), click: open, input: () => open(), keydown: key, blur: () => close() },
  });
  const node = el(
    "div",
    { class: "chooser" },
    el("label", { for: "run", text: "Run" }),
    input,
    el("div", { class: "run-pop" }, list, note),
  );
  return { node, draw };

  function draw(answer, run, clockMs) {
    ({ runs, left_out: leftOut } = answer);
    [current, nowMs] = [run, clockMs];
    if (list.hidden) input.value = current;
    else fill();
  }

  function open() {
    if (list.hidden) at = -1;
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    fill();
  }

  function close() {
    list.hidden = true;
    note.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    input.value = current;
  }

  function found() {
    const asked = input.value.trim().toLowerCase();
    const all =
      asked === "" || input.value === current ? runs : runs.filter((one) => one.run_id.toLowerCase().includes(asked));
    return all.toSorted((a, b) => isNoRun(a.run_id) - isNoRun(b.run_id)).slice(0, MOST);
  }

  function fill() {
    const shown = found();
    keyedRows(list, shown, (one) => one.run_id, option);
    at = Math.min(at, shown.length - 1);
    for (const [i, row] of [...list.children].entries()) {
      row.id = `run-${i}`;
      row.setAttribute("aria-selected", String(i === at));
      row.classList.toggle("current", shown[i].run_id === current);
      about(row, shown[i]);
    }
    if (at >= 0) {
      input.setAttribute("aria-activedescendant", `run-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
    const said = runs.length === 0 ? "No runs yet." : shown.length === 0 ? "No run has that in its name." : left();
    setText(note, said);
    note.hidden = said === "";
  }

  function left() {
    return leftOut
      ? `${many(leftOut, "open run")} not listed, since others are busier: rollbook freshness RUN shows them.`
      : "";
  }

  function option(run) {
    // Pressing must not blur the input first: the list would close under the pointer.
    const pick = (event) => {
      event.preventDefault();
      take(run.run_id);
    };
    return el("li", { role: "option", on: { mousedown: pick } }, el("b", { text: plain(run.run_id) }), el("span"));
  }

  function about(row, run) {
    const parts = [run.closed ? "closed" : run.since ? ago(run.last_ms, nowMs) : "no decisions left"];
    if (isNoRun(run.run_id)) parts.unshift("records of no run");
    if (run.active_version !== null) parts.push(`v${run.active_version}`);
    if (run.ready !== null) parts.push(`${count(run.ready)} ready`);
    if (run.stale) parts.push(`◆ ${count(run.stale)} stale`);
    setText(row.lastElementChild, parts.join(" · "));
  }

  function take(run) {
    current = run;
    close();
    choose(run);
  }

  function key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (list.hidden) open();
      const length = list.children.length;
      if (length) at = (at + step + (at < 0 && step < 0 ? 1 : 0) + length) % length;
      fill();
    } else if (event.key === "Enter" && !list.hidden) {
      const shown = found();
      const picked = shown[at] ?? (shown.length === 1 ? shown[0] : undefined);
      if (picked) take(picked.run_id);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
      input.select();
    }
  }
}

/** The lengths of the windows as a group of radio buttons. */
export function sizeChooser(sizes, names, choose) {
  const buttons = new Map(
    sizes.map((size) => [
      size,
      el("input", { type: "radio", name: "size", value: size, on: { change: () => choose(size) } }),
    ]),
  );
  const labels = [...buttons].map(([size, input]) => el("label", {}, input, el("span", { text: names[size] })));
  const node = el(
    "fieldset",
    { class: "sizes" },
    el("legend", { class: "visually-hidden", text: "Length of a window" }),
    ...labels,
  );
  return { node, draw: (size) => (buttons.get(size).checked = true) };
}
