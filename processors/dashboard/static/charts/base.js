// What all charts have in common: text, axes, tooltips made of nodes, the line of a limit.

import { el } from "../dom.js";
import { clock, lately, minutes, roughly, span } from "../format.js";
import { SILENT_MS, counted } from "../runs.js";
import { name } from "../text.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

/** The frame of an option. No animation: a live chart that moves by itself draws the eye for nothing. */
export function base(colours, tip, grid = {}) {
  return {
    animation: false,
    textStyle: { fontFamily: FONT, fontSize: 11, color: colours.muted },
    grid: { left: 8, right: 24, top: 18, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "axisLabel", ...grid },
    tooltip: {
      trigger: "axis",
      axisPointer: { type: "shadow", shadowStyle: { color: colours.ink, opacity: 0.07 } },
      confine: true,
      className: "chart-tip",
      backgroundColor: colours.raised,
      borderColor: colours.line,
      padding: 8,
      textStyle: { color: colours.ink, fontSize: 12, fontFamily: FONT },
      transitionDuration: 0,
      formatter: tip,
    },
  };
}

/** A category axis. */
export function categories(colours, data, more = {}) {
  return {
    type: "category",
    data,
    axisLine: { lineStyle: { color: colours.line } },
    axisTick: { show: false },
    axisLabel: { color: colours.muted, hideOverlap: true, fontSize: 11 },
    ...more,
  };
}

/** A value axis; counts have no fractions. */
export function values(colours, more = {}) {
  return {
    type: "value",
    minInterval: 1,
    splitNumber: 4,
    axisLabel: { color: colours.muted, formatter: roughly, fontSize: 11 },
    splitLine: { lineStyle: { color: colours.grid } },
    ...more,
  };
}

/** The axis of windows. */
export function timeAxis(colours, slots, more = {}) {
  const data = slots.starts.map((start) => clock(start, slots.size));
  return categories(colours, data, {
    axisLabel: { color: colours.muted, hideOverlap: true, fontSize: 11, showMaxLabel: false },
    ...more,
  });
}

/** The times that a slot stands for. */
export const slotTitle = (slots, i) =>
  `${clock(slots.starts[i], slots.size)} to ${clock(slots.starts[i] + slots.size, slots.size)}`;

/** The scope of a chart over time: up to now, or where nothing happens any more up to when. */
export function lastWindows({ slots, now, nowMs }) {
  if (slots.starts.length === 0) return "";
  const length = span((slots.starts.length * slots.size) / 1000);
  const newest = slots.starts.at(-1);
  const end = Math.min(newest + slots.size, Math.max(newest, now.run.last_ms));
  const old = nowMs - newest - slots.size >= SILENT_MS;
  const which = old ? `${length} until ${lately(end, nowMs)}, ${minutes(nowMs - end)} ago,` : `last ${length}`;
  return `${which} in windows of ${span(slots.size / 1000)}`;
}

/** The scope of what is counted over the whole run. */
export const soFar = ({ now }) => counted(now.run);
export const atPresent = () => "now";

/** A tooltip: a title, and lines of [label, value, colour]. */
export function tip(title, lines) {
  return el(
    "div",
    { class: "tip" },
    el("strong", { text: title }),
    ...lines.map(([label, value, colour]) => {
      const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
      if (colour) swatch.style.setProperty("--swatch", colour);
      return el("div", { class: "tip-line" }, colour ? swatch : null, name(label, 60), el("b", { text: value }));
    }),
  );
}

/**
 * The line of a limit across the categories of an axis: before category `at` + 1, or at a fraction of one. Pixels are
 * computed, since a category axis rounds.
 */
export function limitLine(colours, axis, at, categoriesCount, label) {
  return {
    id: "limit",
    type: "custom",
    silent: true,
    tooltip: { show: false },
    data: [[0, 0]],
    z: 5,
    renderItem: ({ coordSys: box }) => {
      const along = (at + 1) / categoriesCount;
      const x = box.x + box.width * along;
      const y = box.y + box.height * (1 - along);
      const line =
        axis === "x"
          ? { x1: x, y1: box.y - 4, x2: x, y2: box.y + box.height }
          : { x1: box.x, y1: y, x2: box.x + box.width, y2: y };
      const right = axis === "y" || along > 0.6;
      const text = axis === "x" ? { x: right ? x - 5 : x + 5, y: box.y - 14 } : { x: box.x + box.width - 4, y: y - 15 };
      return {
        type: "group",
        children: [
          { type: "line", shape: line, style: { stroke: colours.limit, lineWidth: 1.5, lineDash: [5, 3] } },
          {
            type: "text",
            style: {
              ...text,
              text: label,
              fill: colours.limit,
              stroke: colours.surface,
              lineWidth: 3,
              font: `600 11px ${FONT}`,
              align: right ? "right" : "left",
            },
          },
        ],
      };
    },
  };
}

/** One bar series of a stack. */
export const bars = (id, label, data, color, more = {}) => ({
  id,
  name: label,
  type: "bar",
  stack: "all",
  data,
  itemStyle: { color },
  barCategoryGap: "12%",
  emphasis: { disabled: true },
  ...more,
});
