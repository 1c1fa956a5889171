// Stacked bars over time, and the table of what stands in each window.

import { count } from "../format.js";
import { bars, base, slotTitle, timeAxis, tip, values } from "./base.js";

/** A view of lines {id, name, color, of(window) -> number}, each a layer of the bars. */
export function stacked({ slots, colours }, lines, { unit, empty, caption }) {
  const filled = lines.map((line) => ({ ...line, data: slots.at.map((one) => (one === null ? 0 : line.of(one))) }));
  const sums = filled.map(({ data }) => data.reduce((sum, n) => sum + n, 0));
  const about = `${unit[0].toUpperCase()}${unit.slice(1)}s a window. ${caption}`;
  const legend = filled.map(({ id, name, color }, i) => ({
    name,
    color,
    value: count(sums[i]),
    figure: `window_${id}`,
    raw: sums[i],
  }));
  if (sums.every((n) => n === 0)) return { empty, caption: about };
  const lineOf = (one) => [one.seriesName, count(one.value), one.color];
  return {
    option: {
      ...base(colours, (points) =>
        tip(slotTitle(slots, points[0].dataIndex), points.filter(({ value }) => value > 0).map(lineOf)),
      ),
      xAxis: timeAxis(colours, slots),
      yAxis: values(colours),
      series: filled.map(({ id, name, color, data }) =>
        bars(id, name, data, color, { large: true, largeThreshold: 100 }),
      ),
    },
    legend,
    summary: `Bars over time. In the windows shown: ${filled.map(({ name }, i) => `${sums[i]} ${name}`).join(", ")}.`,
    caption: about,
    table: byWindow(slots, filled),
  };
}

/** Rows of a window each, the newest first; lines are {name, data}. */
export function byWindow(slots, lines) {
  const rows = [];
  for (let i = slots.at.length - 1; i >= 0; i -= 1) {
    if (slots.at[i] !== null) rows.push([slotTitle(slots, i), ...lines.map(({ data }) => count(data[i]))]);
  }
  return { head: ["Window", ...lines.map(({ name }) => name)], numeric: lines.map((_, i) => i + 1), rows };
}
