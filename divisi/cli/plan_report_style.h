// The look of a plan's report. Hues are those of Okabe and Ito, "Color Universal Design", 2008,
// which people tell apart with any kind of colour vision; no meaning rests on a hue alone.
#pragma once

namespace divisi {

inline constexpr const char* kPlanReportStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1b232c; --quiet: #5a6672; --rule: #d9dfe5; --wash: #f3f6f8;
  --blue: #0072b2; --orange: #e69f00; --green: #009e73; --red: #b84300; --purple: #a4437c;
  --on-blue: #ffffff; --on-orange: #1b1300; --on-green: #ffffff;
  --h0: #f0f5fa; --h1: #dce8f3; --h2: #c5d9ec; --h3: #a9c7e2; --h4: #8ab3d7;
  --h5: #6a9dca; --h6: #3a75ab; --h7: #2a6299; --h8: #174f86; --h9: #0b3d70;
  --h-low: #1b232c; --h-high: #ffffff;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14191f; --ink: #e4e9ee; --quiet: #9ba8b4; --rule: #323c46; --wash: #1c232b;
    --blue: #56b4e9; --orange: #e69f00; --green: #2fbf95; --red: #ff8a50; --purple: #dd8fbb;
    --on-blue: #06141e; --on-green: #04150f;
    --h0: #1b2733; --h1: #1f3143; --h2: #233d56; --h3: #284a6b; --h4: #2e5881;
    --h5: #366694; --h6: #5a92c4; --h7: #74a8d4; --h8: #92bfe3; --h9: #b4d7f5;
    --h-low: #e4e9ee; --h-high: #0c1722;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1008px; padding: 32px 24px 64px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 44px 0 10px; padding-top: 14px; border-top: 1px solid var(--rule); }
p { margin: 8px 0; max-width: 76ch; overflow-wrap: anywhere; }
.facts, figcaption, .meaning, summary, footer { color: var(--quiet); }
.facts { margin: 0; max-width: none; }
.verdict { font-size: 18px; margin: 22px 0 14px; max-width: none; }
.good { color: var(--green); } .bad { color: var(--red); } .good, .bad { font-weight: 600; }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 1px;
  margin: 0; background: var(--rule); border: 1px solid var(--rule); border-radius: 6px;
  overflow: hidden; }
dl.tiles div { background: var(--page); padding: 10px 14px; }
dl.tiles dt { color: var(--quiet); font-size: 13px; }
dl.tiles dd { margin: 0; font-size: 22px; line-height: 1.25; font-weight: 600; }
dl.tiles dd small { font-size: 13px; font-weight: 400; color: var(--quiet); }
dl.tiles small { overflow-wrap: anywhere; }
ul { margin: 8px 0; padding-left: 20px; max-width: 86ch; } li { margin: 5px 0; }
li { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 5px 10px; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
thead th, thead th:first-child { font-weight: 600; vertical-align: bottom;
  border-bottom: 2px solid var(--rule); }
th[scope=row], th:first-child { text-align: left; font-weight: 500; padding-left: 0; }
table.prose th, table.prose td { text-align: left; overflow-wrap: break-word; }
table.figures { table-layout: fixed; min-width: 640px; }
table.figures th:first-child { width: 40%; }
.scroll + .scroll { margin-top: 24px; }
.marked { background: var(--wash); } thead .marked { box-shadow: inset 0 3px var(--blue); }
.meaning { display: block; font-size: 12.5px; font-weight: 400; max-width: 46ch; }
.part { padding-left: 16px !important; }
figure { margin: 12px 0 0; } figcaption { font-size: 13.5px; margin-top: 8px; max-width: 86ch; }
details { margin-top: 6px; font-size: 14px; } summary { cursor: pointer; font-size: 13.5px; }
footer { margin-top: 48px; font-size: 13px; }
svg { display: block; max-width: 100%; height: auto; font-size: 13px; }
svg text { fill: var(--ink); } svg .quiet { fill: var(--quiet); } svg .bad { fill: var(--red); }
svg .mid { text-anchor: middle; } svg .end { text-anchor: end; } svg .strong { font-weight: 600; }
.axis, .mark { stroke: var(--ink); stroke-width: 1.2; } .mark { stroke-width: 2; }
.grid { stroke: var(--rule); } .moment { stroke: var(--quiet); stroke-dasharray: 2 3; }
.limit { stroke: var(--red); stroke-width: 2; stroke-dasharray: 6 4; }
.arrow { stroke: var(--quiet); stroke-width: 1.6; fill: none; }
.prefill, .weights { fill: var(--blue); } .decode, .state { fill: var(--orange); }
.both, .buffers { fill: var(--green); }
.idle, .capacity, .freed { fill: var(--wash); stroke: var(--quiet); }
.idle, .freed { stroke-dasharray: 3 3; }
.filling { fill: none; stroke: var(--orange); stroke-width: 2; stroke-dasharray: 5 4; }
svg .on-prefill { fill: var(--on-blue); } svg .on-both { fill: var(--on-green); }
svg .on-decode, svg .on-state { fill: var(--on-orange); }
.bar { fill: var(--h3); } .chosen { fill: var(--blue); }
path { shape-rendering: crispEdges; }
.cell { stroke: var(--page); } .frame { fill: none; stroke: var(--orange); stroke-width: 4; }
.h0 { fill: var(--h0); } .h1 { fill: var(--h1); } .h2 { fill: var(--h2); } .h3 { fill: var(--h3); }
.h4 { fill: var(--h4); } .h5 { fill: var(--h5); } .h6 { fill: var(--h6); } .h7 { fill: var(--h7); }
.h8 { fill: var(--h8); } .h9 { fill: var(--h9); }
svg .on0, svg .on1, svg .on2, svg .on3, svg .on4, svg .on5 { fill: var(--h-low); }
svg .on6, svg .on7, svg .on8, svg .on9 { fill: var(--h-high); }
.curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.c0 { stroke: var(--blue); stroke-width: 3.4; }
.c1 { stroke: var(--orange); stroke-dasharray: 9 6; }
.c2 { stroke: var(--green); stroke-dasharray: 3 3; }
.c3 { stroke: var(--purple); stroke-dasharray: 12 4 3 4; }
@media print {
  body { padding: 0; font-size: 11pt; } h2, figcaption { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
  figure, tr { break-inside: avoid; } summary { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace divisi
