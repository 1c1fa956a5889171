// A chart's frame: title, scope, legend, caption, table in place of the picture. Draws only what is seen and has changed.

import { el, setText, table } from "../dom.js";
import { name } from "../text.js";

const MOST_ROWS = 300;

/**
 * A card of a chart. `chart`: {id, title, scope(context, mode) -> text, span, height, modes: [[id, label]], view(context, mode) -> View}.
 * View: {empty, option, summary, caption, legend: [{name, color, value, dash}], table: {head, rows, numeric}}.
 */
export class Card {
  #chart;
  #context = null;
  #dirty = false;
  #seen = false;
  #echart = null;
  #asTable = window.echarts === undefined;

  constructor(chart) {
    this.#chart = chart;
    this.mode = chart.modes?.[0][0] ?? "";
    const titled = `card-${chart.id}`;
    this.scope = el("span", { class: "scope" });
    this.plot = el("div", { class: `plot plot-${chart.height ?? "medium"}`, role: "img" });
    this.rows = el("div", {
      class: "table-view",
      hidden: true,
      tabindex: "0",
      role: "region",
      "aria-label": `${chart.title}: table`,
    });
    this.blank = el("p", { class: "blank", hidden: true });
    this.legend = el("ul", { class: "legend" });
    this.caption = el("p", { class: "caption" });
    this.toggle = el("button", {
      type: "button",
      class: "quiet small",
      text: "Table",
      "aria-label": `Table: ${chart.title}`,
      "aria-pressed": "false",
      hidden: this.#asTable, // There is nothing else, then.
      on: { click: () => this.#switch() },
    });
    this.node = el(
      "section",
      { class: `card span-${chart.span}`, "aria-labelledby": titled, data: { card: chart.id } },
      el(
        "header",
        {},
        el("h3", { id: titled }, chart.title, " ", this.scope),
        el("div", { class: "card-tools" }, chart.modes ? this.#modes(chart) : null, this.toggle),
      ),
      this.plot,
      this.blank,
      this.rows,
      this.legend,
      this.caption,
    );
    new IntersectionObserver((entries) => this.#appeared(entries.at(-1).isIntersecting), {
      rootMargin: "80px",
    }).observe(this.node);
    new ResizeObserver(() => this.#resized()).observe(this.plot);
  }

  /** What is to be drawn from now on; it is, once the card is seen. */
  show(context) {
    this.#context = context;
    this.#dirty = true;
  }

  /** Draws, if that is due. `unseen`: out of sight, too, for paper. */
  draw({ unseen = false } = {}) {
    if (!this.#dirty || !(this.#seen || unseen) || this.#context === null) return;
    this.#dirty = false;
    const view = this.#chart.view(this.#context, this.mode);
    setText(this.scope, this.#chart.scope(this.#context, this.mode));
    setText(this.caption, view.caption ?? "");
    const blank = view.empty ?? "";
    setText(this.blank, blank);
    this.blank.hidden = blank === "";
    this.plot.hidden = blank !== "" || this.#asTable;
    this.rows.hidden = blank !== "" || !this.#asTable;
    this.legend.replaceChildren(...(view.legend ?? []).map(legendItem));
    if (blank !== "") return;
    if (this.#asTable) this.#tabulate(view.table);
    else this.#picture(view);
  }

  /** The colours have changed. */
  recolour() {
    this.#echart?.clear();
    this.#dirty = true;
  }

  #picture(view) {
    this.plot.setAttribute("aria-label", view.summary);
    this.#echart ??= window.echarts.init(this.plot, null, { renderer: "canvas" });
    this.#echart.setOption(view.option, { replaceMerge: ["series", "xAxis", "yAxis", "visualMap"] });
  }

  #tabulate({ head, rows, numeric }) {
    const top = this.rows.scrollTop;
    this.rows.replaceChildren(table(this.#chart.title, head, rows.slice(0, MOST_ROWS), { numeric }));
    this.rows.scrollTop = top;
  }

  #switch() {
    this.#asTable = !this.#asTable;
    this.toggle.setAttribute("aria-pressed", String(this.#asTable));
    this.#dirty = true;
    this.draw();
  }

  #modes(chart) {
    const option = ([value, text], i) =>
      el(
        "label",
        {},
        el("input", {
          type: "radio",
          name: `mode-${chart.id}`,
          value,
          checked: i === 0,
          on: { change: () => this.#choose(value) },
        }),
        el("span", { text }),
      );
    return el(
      "fieldset",
      { class: "modes" },
      el("legend", { class: "visually-hidden", text: `${chart.title}: what` }),
      ...chart.modes.map(option),
    );
  }

  #choose(mode) {
    this.mode = mode;
    this.recolour();
    this.draw();
  }

  #appeared(seen) {
    this.#seen = seen;
    if (seen) requestAnimationFrame(() => this.draw());
  }

  #resized() {
    if (this.#echart && !this.plot.hidden) requestAnimationFrame(() => this.#echart.resize());
  }
}

function legendItem({ name: label, color, value, dash, figure, raw }) {
  const swatch = el("span", { class: dash ? "swatch swatch-line" : "swatch", "aria-hidden": "true" });
  // Through the CSSOM: the policy of the page forbids attributes of style.
  swatch.style.setProperty("--swatch", color);
  const figured = figure ? { data: { figure, value: raw ?? "" } } : {};
  return el("li", {}, swatch, name(label, 44), value === undefined ? null : el("b", { text: value, ...figured }));
}
