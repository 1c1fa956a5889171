"""How the page looks, light and dark, on wide screens and narrow ones."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --quiet: #5c6875; --ground: #fff; --line: #e2e7ed; --tile: #f5f7f9;
  --trained: #24785a; --rolled_back: #8fb8a8; --refused: #c96f1f; --discarded: #7a5aa6; --taken_out: #9aa3ad;
  --failed: #b3372c; --open: #4a7fb5; --evaluation: #c3b07a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --quiet: #9ba7b4; --ground: #14181d; --line: #2b323b; --tile: #1c2229;
    --trained: #4db38a; --rolled_back: #5d8576; --refused: #e5954a; --discarded: #a98bd4; --taken_out: #77828e;
    --failed: #e06a5e; --open: #74a7da; --evaluation: #a8965e; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 1240px;
  margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 22px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 6px; padding-top: 12px; border-top: 1px solid var(--line); }
p { margin: 0 0 10px; max-width: 76ch; overflow-wrap: anywhere; }
code { font-size: 12px; overflow-wrap: anywhere; }
.quiet, footer { color: var(--quiet); }
footer { margin-top: 40px; font-size: 13px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin-top: 16px; }
.tile { background: var(--tile); border-radius: 6px; padding: 10px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: 13px; }
.wide { overflow-x: auto; }
.wide:focus-visible { outline: 2px solid var(--open); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; white-space: nowrap; }
thead th { color: var(--quiet); font-size: 12.5px; white-space: normal; vertical-align: bottom; text-align: right;
  line-height: 1.25; }
thead th:first-child, thead th.chart { text-align: left; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th.name { white-space: normal; overflow-wrap: anywhere; min-width: 150px; max-width: 340px; }
th em { color: var(--failed); font-style: normal; font-size: 12px; margin-left: 8px; white-space: nowrap; }
td.n { text-align: right; white-space: nowrap; } td.bar { padding-top: 9px; }
td.why { min-width: 260px; max-width: 620px; overflow-wrap: anywhere; }
svg { display: block; } td.bar svg { width: 160px; border-radius: 2px; background: var(--tile); }
.base { stroke: var(--line); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--quiet); max-width: none; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
@media (max-width: 640px) {
  body { padding: 16px 12px 32px; } td.bar svg { width: 64px; } td.why { min-width: 190px; }
  th, td { padding-right: 10px; } th.name { min-width: 120px; }
}
""" + "".join(
    f".k-{kind} {{ fill: var(--{kind}); background: var(--{kind}); }}\n"
    for kind in ("trained", "rolled_back", "refused", "discarded", "taken_out", "failed", "open", "evaluation")
)
