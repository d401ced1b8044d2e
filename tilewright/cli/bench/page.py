"""The benchmark as one self-contained HTML page: bars that people can look at."""

from __future__ import annotations

import math
from html import escape

from tilewright.cli.bench.report import Problem, Report, Row
from tilewright.cli.machine import seconds, size

SPAN = 16.0  # ratios beyond this, or its inverse, fill the bar

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --page: #fbfbfd; --card: #fff;
  --line: #e3e7ee; --track: #eef1f6; --fast: #1f8a5b; --slow: #c2571a; --limit: #3b6fd6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --soft: #98a3b5; --page: #12161d;
  --card: #1a2029; --line: #2a323f; --track: #242c38; --fast: #45c48a; --slow: #f0894a;
  --limit: #7ba4ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 36px 0 4px; }
p { margin: 2px 0; } .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr));
  gap: 12px; margin: 20px 0 4px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; }
.card b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 10px; background: var(--card);
  border: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { font-weight: 600; font-size: 13px; color: var(--soft); text-align: right;
  border-bottom: 1px solid var(--line); }
th, td { padding: 5px 10px; white-space: nowrap; } td { text-align: right; }
th:first-child, td:first-child, .chart { text-align: left; }
tbody tr:nth-child(even) { background: color-mix(in srgb, var(--track) 45%, transparent); }
.chart { width: 32%; min-width: 220px; }
svg { display: block; width: 100%; height: 18px; }
.track { fill: var(--track); } .fast { fill: var(--fast); } .slow { fill: var(--slow); }
.limit { fill: var(--limit); } .axis { stroke: var(--soft); } .whisker { stroke: var(--ink); }
td.fast { color: var(--fast); } td.slow { color: var(--slow); }
td.fast, td.slow { font-weight: 600; }
.scale { position: relative; height: 1.4em; }
.scale span { position: absolute; transform: translateX(-50%); }
.scale span:first-child { transform: none; }
.scale span:last-child { transform: translateX(-100%); }
"""


_SCALE = '<div class="scale">' + "".join(
    f'<span style="left:{25 * i}%">{text}</span>'
    for i, text in enumerate(("1/16", "1/4", "1", "4", "16"))) + "</div>"


def _position(ratio: float) -> float:
    """Return where a ratio stands on the axis, 0..100; 1 is in the middle, steps are factors."""
    scaled = math.log(max(min(ratio, SPAN), 1 / SPAN)) / math.log(SPAN)
    return 50 + 50 * scaled


def _ratio_bar(row: Row) -> str:
    x, low, high = map(_position, (row.ratio, *row.interval))
    left, width = min(50.0, x), abs(x - 50.0)
    kind = "fast" if row.ratio >= 1 else "slow"
    title = f"{row.ratio:.2f} ({row.interval[0]:.2f} to {row.interval[1]:.2f})"
    return (f'<svg viewBox="0 0 100 18" preserveAspectRatio="none" role="img" '
            f'aria-label="ratio {title}"><title>{title}</title>'
            f'<rect class="track" x="0" y="4" width="100" height="10"/>'
            f'<rect class="{kind}" x="{left:.2f}" y="4" width="{max(width, .4):.2f}" height="10"/>'
            f'<line class="whisker" x1="{low:.2f}" x2="{high:.2f}" y1="9" y2="9"/>'
            f'<line class="axis" x1="50" x2="50" y1="0" y2="18" '
            f'vector-effect="non-scaling-stroke"/></svg>')


def _limit_bar(share: float) -> str:
    width = 100 * min(max(share, 0.0), 1.0)
    return (f'<svg viewBox="0 0 100 18" preserveAspectRatio="none" role="img" '
            f'aria-label="{share:.0%} of the limit"><rect class="track" x="0" y="4" width="100" '
            f'height="10"/><rect class="limit" x="0" y="4" width="{width:.2f}" height="10"/></svg>')


def _peer_rows(rows: list[Row]) -> str:
    lines = []
    for r in rows:
        kind = "fast" if r.ratio >= 1 else "slow"
        lines.append(
            f"<tr><td>{escape(r.case)}</td><td>{seconds(r.ours_s)}</td>"
            f"<td>{seconds(r.peer_s)}</td><td class={kind}>{r.ratio:.2f}</td>"
            f'<td class="chart">{_ratio_bar(r)}</td></tr>')
    return "".join(lines)


def _peer_section(peer: str, version: str, rows: list[Row], mean: float) -> str:
    return (f"<h2>Against {escape(peer)} {escape(version)}</h2>"
            f'<p class="soft">Geometric mean {mean:.2f}. Right of the middle tilewright is faster; '
            "the thin line is the 95% interval. Longer bars end at the edge.</p>"
            f'<div class="scroll"><table><thead><tr><th>case</th><th>ours</th><th>{escape(peer)}'
            f'</th><th>ratio</th><th class="chart">{_SCALE}</th></tr></thead>'
            f"<tbody>{_peer_rows(rows)}</tbody></table></div>")


def _limit_section(report: Report) -> str:
    seen: dict[str, Row] = {}
    for r in report.rows:
        seen.setdefault(r.case, r)
    heads = "<th>searched</th><th>gain</th><th>share</th>" if report.searched else ""
    lines = "".join(
        f"<tr><td>{escape(r.case)}</td><td>{seconds(r.ours_s)}</td><td>{r.gbps:.1f}</td>"
        f"<td>{r.gflops:.1f}</td><td>{r.limit_share:.0%}</td>"
        f"{_searched_cells(r) if report.searched else ''}"
        f'<td class="chart">{_limit_bar(r.searched_limit_share or r.limit_share)}</td></tr>'
        for r in seen.values())
    return ("<h2>Against the machine</h2>"
            '<p class="soft">The least time that the bytes and FLOP of a case need here, over the '
            "time taken. Bandwidth and arithmetic were measured in the same run.</p>"
            '<div class="scroll"><table><thead><tr><th>case</th><th>ours</th><th>GB/s</th>'
            f'<th>GFLOP/s</th><th>share</th>{heads}<th class="chart">share of the limit</th></tr>'
            f"</thead><tbody>{lines}</tbody></table></div>")


def _searched_cells(row: Row) -> str:
    if row.searched_s is None or row.searched_ratio is None:
        return "<td></td>" * 3
    kind = "fast" if row.searched_ratio >= 1.02 else "slow" if row.searched_ratio < 0.98 else ""
    return (f"<td>{seconds(row.searched_s)}</td><td class=\"{kind}\">{row.searched_ratio:.2f}</td>"
            f"<td>{row.searched_limit_share:.0%}</td>")


def _cards(report: Report) -> str:
    limits = report.limits
    cards = [(f"{mean:.2f}&times;", f"{escape(peer)} over tilewright, geometric mean")
             for peer, mean in report.means().items()]
    largest = max(limits.read)
    cards += [(f"{limits.flops / 1e9:.0f}", "GFLOP/s, multiply-adds in registers"),
              (f"{limits.read[largest] / 1e9:.1f}", f"GB/s reading {size(largest)}"),
              (f"{limits.write[largest] / 1e9:.1f}", f"GB/s writing {size(largest)}")]
    return "".join(f'<div class="card"><b>{value}</b><span class="soft">{text}</span></div>'
                   for value, text in cards)


def _sentence(problem: Problem) -> str:
    return f"{problem.case}: {problem.peer or 'tilewright'}: {problem.reason}"


def _problems(report: Report) -> str:
    if not report.problems:
        return ""
    items = "".join(f"<li>{escape(_sentence(p))}</li>"
                    for p in report.problems)
    return f"<h2>Left out</h2><ul>{items}</ul>"


def page(report: Report) -> str:
    """Return the whole page as text: no scripts, no external files."""
    machine, threads = report.machine, report.limits.threads
    means = report.means()
    sections = "".join(
        _peer_section(peer, report.peers[peer], [r for r in report.rows if r.peer == peer], mean)
        for peer, mean in means.items())
    about = (f"{escape(str(machine.get('cpu', '')))}, {threads} thread{'s' * (threads != 1)}, "
             f"Python {escape(str(machine.get('python', '')))}, tilewright "
             f"{escape(str(machine.get('tilewright', '')))}")
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>tilewright bench</title><style>{_STYLE}</style></head><body><main>"
            f'<h1>tilewright bench</h1><p class="soft">{about}</p>'
            f'<div class="cards">{_cards(report)}</div>{sections}{_limit_section(report)}'
            f"{_problems(report)}</main></body></html>\n")
