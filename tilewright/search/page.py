"""A record as one self-contained HTML page: what was tried, how it went, what won."""

from __future__ import annotations

import math
from collections import Counter
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.search.record import Record, Trial

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000, 300, 74, 12, 34  # of the scatter, in its own units
CEILING = 8.0  # times the best; slower candidates are drawn at the upper edge
COLUMN, ROW, ROWS = 190, 17, 26  # of the tree: a round, a candidate, the most drawn in a round

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --page: #fbfbfd; --card: #fff;
  --line: #e3e7ee; --dot: #8fa0b8; --beam: #3b6fd6; --win: #1f8a5b; --bad: #c2571a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --soft: #98a3b5; --page: #12161d;
  --card: #1a2029; --line: #2a323f; --dot: #6f7f97; --beam: #7ba4ff; --win: #45c48a;
  --bad: #f0894a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 24px; margin: 0 0 4px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 34px 0 4px; }
p { margin: 2px 0 10px; } .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr));
  gap: 12px; margin: 18px 0 4px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; }
.card b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.card .win { color: var(--win); }
.frame { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px; overflow-x: auto; }
svg { display: block; } svg text { fill: var(--soft); font-size: 12px; }
svg.wide { width: 100%; height: auto; }
.grid { stroke: var(--line); } .given { stroke: var(--soft); stroke-dasharray: 5 4; }
.best { fill: none; stroke: var(--win); stroke-width: 2; }
.dot { fill: var(--dot); } .dot.beam { fill: var(--beam); } .dot.win { fill: var(--win); }
.edge { fill: none; stroke: var(--line); stroke-width: 1.5; }
.edge.path { stroke: var(--win); stroke-width: 2.5; }
svg text.beam { fill: var(--beam); } svg text.win { fill: var(--win); font-weight: 600; }
svg text.head { fill: var(--ink); font-weight: 600; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); gap: 14px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 6px 0;
  padding: 12px; overflow-x: auto; font: 12.5px/1.45 ui-monospace, Menlo, Consolas, monospace; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
td, th { padding: 3px 10px; text-align: left; vertical-align: top; } th { color: var(--soft); }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr { border-bottom: 1px solid var(--line); } summary { cursor: pointer; padding: 4px 0; }
"""


def _time(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{seconds / 1e-9:.3g} ns"


def _class(record: Record, trial: Trial) -> str:
    if trial.number == record.winner:
        return "win"
    return "beam" if any(trial.number in r.beam for r in record.rounds) else ""


def _tip(trial: Trial) -> str:
    time = f"{_time(trial.seconds)}, spread {trial.spread:.0%}" if trial.samples else ""
    words = (f"{trial.number}: {trial.label}", time, f"{trial.fate} {trial.reason}".strip())
    return escape("\n".join(w for w in words if w))


# -- cards ---------------------------------------------------------------------------------


def _cards(record: Record) -> str:
    counts, spent = record.counts, record.seconds.get("total", 0.0)
    given, best = (_time(t.seconds) if t.samples else "?" for t in (record.start, record.best))
    cards = [(given, "the given schedule", ""), (best, "the winner", ""),
             (f"{record.gain:.3g}&times;", "as fast", "win" if record.winner else ""),
             (f"{counts.get('candidates', 0)}", f"candidates, {counts.get('distinct', 0)} "
                                                "distinct", ""),
             (f"{counts.get('compiled', 0)}", f"compiled, {counts.get('timed', 0)} timed", ""),
             (f"{spent:.1f} s", "of search", "")]
    return "".join(f'<div class="card"><b class="{kind}">{value}</b>'
                   f'<span class="soft">{text}</span></div>' for value, text, kind in cards)


# -- time against candidates ---------------------------------------------------------------


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two times, for a logarithmic axis."""
    found = [m * 10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
             for m in (1, 2, 5)]
    return [t for t in found if low <= t <= high]


def _scatter(record: Record) -> str:
    timed = [t for t in record.trials if t.samples]
    if not timed:
        return "<p>Nothing was timed.</p>"
    low, high = (f(t.seconds for t in timed) for f in (min, max))
    low, high = low / 1.12, min(high, CEILING * low) * 1.12
    last = max(len(record.trials) - 1, 1)

    def x(number: int) -> float:
        return LEFT + (WIDTH - LEFT - 16) * number / last

    def y(seconds: float) -> float:
        share = math.log(min(seconds, high) / low) / math.log(high / low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    parts = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
             f'<text x="{LEFT - 8}" y="{y(t) + 4:.1f}" text-anchor="end">{_time(t)}</text>'
             for t in _ticks(low, high)]
    given = y(record.start.seconds) if record.start.samples else TOP
    parts.append(f'<line class="given" x1="{LEFT}" x2="{WIDTH}" y1="{given:.1f}" '
                 f'y2="{given:.1f}"><title>the given schedule</title></line>')
    best = math.inf
    path: list[str] = []
    for t in timed:
        if t.seconds < best:
            path += [f"{x(t.number):.1f},{y(best):.1f}"] if path else []
            best = t.seconds
            path.append(f"{x(t.number):.1f},{y(best):.1f}")
    path.append(f"{WIDTH - 16},{y(best):.1f}")
    parts.append(f'<polyline class="best" points="{" ".join(path)}"/>')
    ordered = sorted(timed, key=lambda t: ("", "beam", "win").index(_class(record, t)))
    parts += [f'<circle class="dot {_class(record, t)}" cx="{x(t.number):.1f}" '
              f'cy="{y(t.seconds):.1f}" r="{6 if t.number == record.winner else 4}">'
              f"<title>{_tip(t)}</title></circle>" for t in ordered]
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
                 "candidates, in the order they were thought of</text>")
    return (f'<div class="frame"><svg class="wide" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="time against candidates">{"".join(parts)}</svg></div>')


# -- the tree of rounds --------------------------------------------------------------------


def _path_to(record: Record) -> set[int]:
    """Return the winner, what it was a move from, and so on."""
    number, found = record.winner, set()
    while number >= 0:
        found.add(number)
        number = record.trials[number].parent
    return found


def _columns(record: Record) -> list[list[Trial]]:
    """Return the candidates drawn of each round: those on a path to the winner or with children,
    then the fastest."""
    path = _path_to(record)
    parents = {t.parent for t in record.trials if t.samples}
    columns = []
    for number in range(max(t.round for t in record.trials) + 1):
        timed = [t for t in record.trials if t.round == number and t.samples]
        timed.sort(key=lambda t: (t.number not in path and t.number not in parents, t.seconds))
        columns.append(sorted(timed[:ROWS], key=lambda t: t.seconds))
    return columns


def _tree(record: Record) -> str:
    columns, path = _columns(record), _path_to(record)
    place = {t.number: (12 + COLUMN * c, 44 + ROW * r)
             for c, column in enumerate(columns) for r, t in enumerate(column)}
    edges, nodes = [], []
    for number, column in enumerate(columns):
        count = sum(t.round == number for t in record.trials)
        title = f"round {number}" if number else "starts"
        nodes.append(f'<text class="head" x="{12 + COLUMN * number}" y="16">{title}</text>'
                     f'<text x="{12 + COLUMN * number}" y="31">{count} candidates</text>')
        for t in column:
            (x, y), kind = place[t.number], _class(record, t)
            nodes.append(f'<g><circle class="dot {kind}" cx="{x}" cy="{y}" r="4.5"/><text class='
                         f'"{kind}" x="{x + 9}" y="{y + 4}">{_time(t.seconds)}</text>'
                         f"<title>{_tip(t)}</title></g>")
            if t.parent in place and t.parent != t.number:
                (px, py), on = place[t.parent], {t.number, t.parent} <= path
                left, middle = px + 70, (px + 70 + x) / 2
                edges.append((on, f'<path class="edge{" path" if on else ""}" d="M{left} {py} '
                                  f'C{middle} {py} {middle} {y} {x - 6} {y}"/>'))
    lines = "".join(text for _, text in sorted(edges, key=lambda e: e[0]))
    width = COLUMN * len(columns)
    height = 60 + ROW * max(map(len, columns))
    return (f'<div class="frame"><svg width="{width}" height="{height}" role="img" '
            f'aria-label="tree of rounds">{lines}{"".join(nodes)}</svg></div>')


def _decisions(record: Record) -> str:
    items = "".join(f"<li>round {r.number}: {escape(r.decision)} "
                    f'<span class="soft">(at {r.ended:.1f} s)</span></li>' for r in record.rounds)
    items += "".join(f"<li>{escape(line)}</li>" for line in record.ending())
    return f"<ul>{items}</ul><p>It stopped: {escape(record.why)}.</p>"


# -- loops and candidates ------------------------------------------------------------------


def _loops(trial: Trial, title: str) -> str:
    schedule = escape(trial.schedule) or '<span class="soft">no actions</span>'
    return (f"<div><p><b>{title}</b>, {_time(trial.seconds) if trial.samples else 'not timed'}"
            f"</p><pre>{escape(trial.nest)}</pre><pre>{schedule}</pre></div>")


def _winner(record: Record) -> str:
    if not record.winner:
        return f'<div class="pair">{_loops(record.start, "the given schedule")}</div>'
    return (f'<div class="pair">{_loops(record.start, "before")}'
            f'{_loops(record.best, "after")}</div>')


def _all(record: Record) -> str:
    rows = "".join(
        f'<tr><td class="number">{t.number}</td><td class="number">'
        f'{t.parent if t.parent >= 0 else ""}</td><td class="number">{t.round}</td>'
        f'<td class="number">{_time(t.seconds) if t.samples else ""}</td>'
        f'<td class="number">{f"{t.spread:.0%}" if t.samples else ""}</td><td>{t.fate}</td>'
        f"<td>{escape(t.label)}</td><td>{escape(t.reason)}</td></tr>" for t in record.trials)
    fates = ", ".join(f"{n} {fate}" for fate, n in
                      Counter(t.fate for t in record.trials).most_common())
    return (f"<details><summary>{fates}</summary><div class='frame'><table><thead><tr>"
            + "".join(f"<th>{h}</th>" for h in ("", "from", "round", "time", "spread", "fate",
                                                "move", "reason"))
            + f"</tr></thead><tbody>{rows}</tbody></table></div></details>")


def page(record: Record, name: str = "") -> str:
    """Return the whole page as text: no scripts, no external files. `name` is its title."""
    title = escape(name or record.kernel.splitlines()[0])
    sections = (
        ("Time against candidates", "Each dot is a candidate that ran; the line is the best so "
         "far, the dashed one the given schedule. Green won, blue was in a beam. What took more "
         f"than {CEILING:g} times the best is drawn at the upper edge.",
         _scatter(record)),
        ("The tree of rounds", "The fastest candidates of each round, joined to what they were a "
         "move from; the green path leads to the winner.", _tree(record) + _decisions(record)),
        ("The loops", "", _winner(record)),
        ("Every candidate", "", _all(record)),
        ("The kernel", "", f"<pre>{escape(record.kernel)}</pre>"))
    body = "".join(f'<h2>{head}</h2><p class="soft">{text}</p>{content}'
                   for head, text, content in sections)
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>search of {title}</title><style>{_STYLE}</style></head><body><main>"
            f'<h1>{title}</h1><p class="soft">beam {record.beam}, seed {record.seed}, on '
            f'{escape(record.device)}</p><div class="cards">{_cards(record)}</div>{body}'
            f"</main></body></html>\n")
