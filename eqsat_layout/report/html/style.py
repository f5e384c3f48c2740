"""Style and script of the HTML report.

In: nothing. Out: text for the page. Colours are distinct in light and in dark; text stays readable on both.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --page: #f6f7f9; --card: #ffffff; --line: #d5d9e2;
  --edge: #98a2b3; --move: #c2410c; --movebg: #ffedd5;
  --l0: #64748b; --l1: #2563eb; --l2: #059669; --l3: #9333ea; --l4: #b45309; --l5: #db2777; --l6: #0891b2;
  --l7: #4d7c0f; --l8: #7c3aed; --l9: #475569; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b5; --page: #12151b; --card: #1b2029;
  --line: #323a48; --edge: #5b6678; --move: #fb923c; --movebg: #43250f;
  --l0: #94a3b8; --l1: #60a5fa; --l2: #34d399; --l3: #c084fc; --l4: #fbbf24; --l5: #f472b6; --l6: #22d3ee;
  --l7: #a3e635; --l8: #a78bfa; --l9: #cbd5e1; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
header { padding: 20px 28px 8px; }
h1 { font-size: 21px; margin: 0 0 12px; }
h2 { font-size: 15px; margin: 0 0 8px; }
h3 { font-size: 13px; margin: 12px 0 4px; color: var(--soft); }
.figures { display: flex; flex-wrap: wrap; gap: 10px; margin: 0; }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 7px 14px; }
.figures dt { color: var(--soft); font-size: 12px; }
.figures dd { margin: 0; font-size: 17px; font-weight: 600; font-variant-numeric: tabular-nums; }
.figures small { display: block; font-weight: 400; font-size: 12px; color: var(--soft); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 14px 0 0; }
.legend i { display: inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: 6px;
  vertical-align: -2px; background: var(--c); }
.legend small { color: var(--soft); }
.tools { padding: 8px 28px; display: flex; gap: 8px; align-items: center; color: var(--soft); }
.tools button { font: inherit; min-width: 34px; padding: 2px 9px; border: 1px solid var(--line); border-radius: 6px;
  background: var(--card); color: var(--ink); cursor: pointer; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 14px; padding: 0 28px; }
.side { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px; min-width: 0; }
.scroll { overflow: auto; height: 78vh; }
@media print { .scroll { height: auto; overflow: visible; } .tools { display: none; } }
.text { padding: 18px 28px 4px; }
table { border-collapse: collapse; width: 100%; background: var(--card); }
th, td { text-align: left; padding: 5px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .op { font-weight: 600; font-size: 13px; }
svg .layout { text-anchor: end; fill: var(--c); font-weight: 600; }
svg .small { fill: var(--soft); font-size: 11px; }
svg .right { text-anchor: end; }
svg .bytes { fill: var(--soft); font-size: 10.5px; paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
.node rect { fill: var(--card); stroke: var(--line); }
.node.op > rect:first-of-type { stroke: var(--c); stroke-opacity: .55; }
.node .stripe { fill: var(--c); stroke: none; }
.node.end rect { fill: none; stroke-dasharray: 4 3; stroke: var(--soft); }
.node.move rect { fill: var(--movebg); stroke: var(--move); stroke-width: 2.2; }
.node.move .op { fill: var(--move); }
.edge { fill: none; stroke: var(--edge); }
.move { --c: var(--move); }
""" + "\n".join(f".c{i} {{ --c: var(--l{i}); }}" for i in range(10))

SCRIPT: Final = """
(function () {
  var zoom = 1, panes = Array.prototype.slice.call(document.querySelectorAll('.scroll'));
  var together = document.getElementById('together'), busy = false;
  function apply() {
    document.querySelectorAll('svg[data-width]').forEach(function (svg) {
      svg.setAttribute('width', svg.dataset.width * zoom);
      svg.setAttribute('height', svg.dataset.height * zoom);
    });
  }
  document.querySelectorAll('[data-zoom]').forEach(function (button) {
    button.addEventListener('click', function () {
      var factor = parseFloat(button.dataset.zoom);
      zoom = factor ? Math.min(3, Math.max(0.1, zoom * factor)) : 1;
      apply();
    });
  });
  panes.forEach(function (pane) {
    pane.addEventListener('scroll', function () {
      if (busy || !together.checked) { return; }
      busy = true;
      var share = pane.scrollTop / Math.max(1, pane.scrollHeight - pane.clientHeight);
      panes.forEach(function (other) {
        if (other !== pane) { other.scrollTop = share * (other.scrollHeight - other.clientHeight); }
      });
      requestAnimationFrame(function () { busy = false; });
    });
  });
})();
"""
