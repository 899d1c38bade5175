/** Colours of pages on light screens and on paper. Words, not only colours, distinguish arms and tones. */
const light = `color-scheme: light;
  --paper: #ffffff; --panel: #f6f7f9; --ink: #16202c; --soft: #55606e; --rule: #d9dee5; --grid: #e6e9ee;
  --minimum-effect: #8a94a324; --accent: #1d4ed8;
  --better: #15803d; --worse: #b91c1c; --neither: #5b6675; --open: #92600a;
  --arm-0: #5b6675; --arm-1: #1d4ed8; --arm-2: #c2410c; --arm-3: #0f766e; --arm-4: #7e22ce; --arm-5: #be185d; --arm-6: #4d7c0f; --arm-7: #854d0e;
  --masked: #2f855a; --delayed: #2b6cb0; --surfaced: #a15c07; --escaped: #b42318; --not_reached: #67717e;`

const dark = `color-scheme: dark;
  --paper: #11161d; --panel: #19202a; --ink: #e8ecf1; --soft: #a3aebb; --rule: #2d3743; --grid: #252e39;
  --minimum-effect: #8a94a32e; --accent: #93b4ff;
  --better: #4ade80; --worse: #fb7f7f; --neither: #a9b4c1; --open: #f2b84b;
  --arm-0: #a9b4c1; --arm-1: #7aa5ff; --arm-2: #fb9a5b; --arm-3: #3fcfc0; --arm-4: #c792f7; --arm-5: #f780b5; --arm-6: #a6d84e; --arm-7: #d9a25f;`

export const style = `:root { ${light} }
@media screen and (prefers-color-scheme: dark) { :root:not(.paper) { ${dark} } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1, h2, h3 { line-height: 1.25; text-wrap: balance; overflow-wrap: anywhere; }
h1 { font-size: 1.125rem; font-weight: 600; margin: 0 0 1.25rem; color: var(--soft); }
h1 b { color: var(--ink); font-weight: 700; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; overflow-wrap: anywhere; }
ul { margin: .5rem 0; padding-left: 1.25rem; max-width: 46rem; }
li { margin: .25rem 0; }
.note { color: var(--soft); font-size: .875rem; }
.verdict { border: 1px solid var(--rule); border-left: 6px solid var(--tone); border-radius: 8px; background: var(--panel); padding: 1.25rem 1.5rem; }
.verdict p { max-width: none; }
.verdict .sentence { font-size: 1.5rem; line-height: 1.35; font-weight: 600; margin: .75rem 0 .5rem; text-wrap: pretty; }
.badge { display: inline-block; font-size: .875rem; font-weight: 700; letter-spacing: .02em; line-height: 1; padding: .4rem .7rem; border-radius: 999px; background: var(--tone); color: var(--paper); -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.badge::first-letter { text-transform: uppercase; }
.better { --tone: var(--better); } .worse { --tone: var(--worse); } .neither, .unknown { --tone: var(--neither); } .open { --tone: var(--open); }
.scroll { overflow-x: auto; margin: .75rem 0; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; }
th, td { text-align: left; vertical-align: baseline; padding: .45rem 1rem .45rem 0; border-bottom: 1px solid var(--rule); unicode-bidi: isolate; }
th:last-child, td:last-child { padding-right: 0; }
thead th { font-size: .8125rem; font-weight: 600; color: var(--soft); border-bottom-color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 400; }
tbody th b { font-weight: 700; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead .number { white-space: normal; }
#settings td, #settings tbody th { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; font-size: .875rem; overflow-wrap: anywhere; }
.forest { min-width: 44rem; margin-bottom: 1rem; }
.forest td, .forest th { vertical-align: middle; padding-top: .3rem; padding-bottom: .3rem; }
.forest .picture, .forest .axis { width: 48%; }
.forest .axis { padding: .3rem 1rem .3rem 0; }
.forest .axis span { white-space: nowrap; display: inline-block; width: 33.33%; text-align: center; }
.forest .axis span:first-child { text-align: left; } .forest .axis span:last-child { text-align: right; }
.forest svg { display: block; overflow: visible; }
.forest tbody th { white-space: nowrap; }
.forest .decides th { font-weight: 700; }
.forest .tone { color: var(--tone); font-weight: 600; }
.tag { font-size: .6875rem; font-weight: 700; line-height: 1; padding: .15rem .4rem; border-radius: 4px; border: 1px solid currentColor; color: var(--soft); margin-left: .25rem; }
.minimum-effect { fill: var(--minimum-effect); }
.zero { stroke: var(--soft); stroke-width: 1; }
.range { stroke: var(--tone); stroke-width: 2.5; } .end { stroke: var(--tone); stroke-width: 2; }
.estimate { fill: var(--tone); stroke: var(--paper); stroke-width: 1.5; }
.decides .range { stroke-width: 4; } .decides .estimate { r: 6px; }
.chart { margin: .75rem 0 0; }
.uplot { width: 100% !important; font: inherit; }
.u-legend { font-size: .875rem; margin: .25rem 0 0; text-align: left; font-variant-numeric: tabular-nums; width: auto; }
.u-legend tr { border: 0; } .u-legend th, .u-legend td { border: 0; padding: 2px 4px; }
.u-series th { cursor: default; } .u-legend .edge { display: none; }
.u-legend .u-label { color: var(--ink); } .u-legend .u-value { color: var(--soft); }
.u-cursor-x { border-color: var(--soft) !important; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); font-size: .875rem; width: max-content; }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; margin: .75rem 0; font-size: .875rem; }
.key li { margin: 0; display: flex; align-items: center; gap: .4rem; }
.key i { width: .8rem; height: .8rem; border-radius: 2px; background: var(--fill); -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.bar { display: grid; grid-template-columns: minmax(5rem, 10rem) 1fr minmax(3rem, max-content); gap: 1rem; align-items: center; margin: .35rem 0; font-size: .9375rem; }
.bar .name { overflow-wrap: anywhere; }
.bar svg { display: block; border-radius: 4px; background: var(--panel); }
.bar rect { fill: var(--fill); stroke: var(--paper); stroke-width: 1; }
.bar text { fill: #ffffff; font-size: 13px; font-weight: 600; text-anchor: middle; font-variant-numeric: tabular-nums; }
.masked { --fill: var(--masked); } .delayed { --fill: var(--delayed); } .surfaced { --fill: var(--surfaced); } .escaped { --fill: var(--escaped); } .not_reached { --fill: var(--not_reached); }
@media (max-width: 40rem) { main { padding: 1.5rem 1rem 3rem; } .verdict { padding: 1rem; } .verdict .sentence { font-size: 1.25rem; } }
@media print {
  main { max-width: none; padding: 0; } body { font-size: 11pt; }
  h2, h3 { break-after: avoid; } h2 { margin-top: 1.5rem; } .verdict, .chart, .bars, .forest, tr { break-inside: avoid; }
  .scroll { overflow: visible; } .forest { min-width: 0; } details:not([open]) { display: none; }
}`
