// Throughput by stage: a strip each, all with one scale.

import { count } from "../format.js";
import { countOf } from "../state.js";
import { base, lastWindows, slotTitle, soFar, timeAxis, tip } from "./base.js";
import { byWindow } from "./stacked.js";

const STAGES = ["dispatched", "generated", "rewarded", "reserved", "admitted", "consumed", "discarded"];

export const throughput = {
  id: "throughput",
  title: "Throughput by stage",
  span: 6,
  height: "tall",
  scope: lastWindows,
  view({ slots, colours, totals, now }) {
    const perSecond = 1000 / slots.size;
    const lines = STAGES.map((stage) => ({
      stage,
      data: slots.at.map((one) => (one === null ? 0 : countOf(one.stages, stage))),
    }));
    if (lines.every(({ data }) => data.every((n) => n === 0)))
      return { empty: "No trajectory moved in these windows." };
    const rate = (n) => `${count(n)} (${(n * perSecond).toPrecision(3)}/s)`;
    const most = Math.max(...lines.map(({ data }) => Math.max(...data)));
    const place = (i) => `${(i * 92) / STAGES.length + 2}%`;
    const shared = {
      type: "category",
      boundaryGap: false,
      axisTick: { show: false },
      axisLine: { lineStyle: { color: colours.line } },
    };
    return {
      option: {
        ...base(colours, (points) =>
          tip(
            slotTitle(slots, points[0].dataIndex),
            points
              .toSorted((a, b) => a.seriesIndex - b.seriesIndex)
              .map((one) => [one.seriesName, rate(one.value), colours[one.seriesName]]),
          ),
        ),
        axisPointer: { link: [{ xAxisIndex: "all" }], type: "line", lineStyle: { color: colours.muted } },
        // One strip a stage, all with one scale: where the flow stalls is where the strips differ.
        grid: STAGES.map((_, i) => ({
          left: 78,
          right: 44,
          top: place(i),
          height: `${72 / STAGES.length}%`,
          outerBoundsMode: "none",
        })),
        xAxis: STAGES.map((_, i) => ({
          ...timeAxis(colours, slots),
          ...shared,
          gridIndex: i,
          axisLabel: { ...timeAxis(colours, slots).axisLabel, show: i === STAGES.length - 1 },
        })),
        yAxis: STAGES.map((stage, i) => ({
          type: "value",
          gridIndex: i,
          max: most,
          interval: most,
          name: stage,
          nameLocation: "middle",
          nameRotate: 0,
          nameGap: 8,
          nameTextStyle: { color: colours.muted, align: "right", fontSize: 11 },
          axisLabel: { show: false },
          splitLine: { show: false },
        })),
        series: lines.map(({ stage, data }, i) => ({
          id: stage,
          name: stage,
          type: "line",
          step: "middle",
          xAxisIndex: i,
          yAxisIndex: i,
          data,
          showSymbol: false,
          lineStyle: { width: 1, color: colours[stage] },
          areaStyle: { color: colours[stage], opacity: 0.35 },
          endLabel: { show: true, formatter: ({ value }) => count(value), color: colours.ink, fontSize: 11 },
          emphasis: { disabled: true },
        })),
      },
      legend: STAGES.map((stage) => ({
        name: stage,
        color: colours[stage],
        value: count(countOf(totals.stages, stage)),
        figure: `stage_${stage}`,
        raw: countOf(totals.stages, stage),
      })),
      summary: `Trajectories a window by stage. In all, ${soFar({ now })}: ${STAGES.map((stage) => `${countOf(totals.stages, stage)} ${stage}`).join(", ")}.`,
      caption: `Trajectories a window; full height: ${count(most)}. Numbers beside the names: ${soFar({ now })}.`,
      table: byWindow(
        slots,
        lines.map(({ stage, data }) => ({ name: stage, data })),
      ),
    };
  },
};
