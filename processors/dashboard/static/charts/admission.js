// Admitted and refused rows over time, and failures by stage.

import { count, words } from "../format.js";
import { countOf, rowsRefused } from "../state.js";
import { short } from "../text.js";
import { lastWindows, soFar } from "./base.js";
import { stacked } from "./stacked.js";

const begin = (words) => words[0].toUpperCase() + words.slice(1);

export const admission = {
  id: "admission",
  title: "Admitted and refused",
  span: 8,
  scope: lastWindows,
  view(context) {
    const { colours, totals } = context;
    const lines = [
      { id: "admitted", name: "admitted", color: colours.admitted, of: (one) => countOf(one.stages, "admitted") },
      {
        id: "refused",
        name: "refused by Reserve or Admit",
        color: colours.refused,
        of: (one) => rowsRefused(one.refusals),
      },
    ];
    const sofar = `${begin(soFar(context))}: ${count(countOf(totals.stages, "admitted"))} admitted, ${count(rowsRefused(totals.refusals))} refused.`;
    return stacked(context, lines, {
      unit: "row",
      empty: "Nothing was admitted or refused in these windows.",
      caption: sofar,
    });
  },
};

export const failures = {
  id: "failures",
  title: "Failures by stage",
  span: 6,
  scope: lastWindows,
  view(context) {
    const { colours, snapshot } = context;
    const lines = [
      {
        id: "generation",
        name: "generation",
        color: colours.generated,
        of: (one) => countOf(one.failures, "generation"),
      },
      { id: "reward", name: "reward", color: colours.reward, of: (one) => countOf(one.failures, "reward") },
    ];
    const causes = (snapshot?.failures ?? [])
      .slice(0, 6)
      .map(({ stage, cause, count: n }) => `${short(stage, 20)}: ${short(words(cause), 40)} ${count(n)}`);
    const caption = causes.length ? `So far ${causes.join(", ")}.` : "A failure is never a reward of 0.";
    return stacked(context, lines, { unit: "failure", empty: "Nothing failed in these windows.", caption });
  },
};
