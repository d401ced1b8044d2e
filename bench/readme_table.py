"""Write the figures of a benchmark into the README.

    tilewright bench --json bench.json && python bench/readme_table.py bench.json [README.md]

Replaces what stands between the two marker comments; nothing else is touched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def _time(value: float) -> str:
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.1f} µs"


def figures(data: dict[str, Any]) -> str:
    """Return the Markdown of a benchmark's JSON object: one line a case, a ratio for each peer."""
    peers = list(data["geometric_means"])
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for row in data["rows"]:
        cases.setdefault(row["case"], {})[row["peer"]] = row
    machine, limits = data["machine"], data["limits"]
    threads = limits["threads"]
    largest = max(limits["read_gbps"], key=int)
    lines = [
        f"Measured on {machine['cpu']}, {threads} thread{'s' * (threads != 1)}, float32; "
        + ", ".join(f"{p} {data['peers'][p]}" for p in peers)
        + f". The machine: {limits['fma_gflops']:.0f} GFLOP/s in registers, "
        f"{limits['read_gbps'][largest]:.0f} GB/s reading memory. A ratio is the peer's time over "
        "ours, so above 1 tilewright is faster.", "",
        "| case | ours | share of the limit | " + " | ".join(f"{p} / ours" for p in peers) + " |",
        "|---|--:|--:|" + "--:|" * len(peers),
        "| **geometric mean** | | | " + " | ".join(
            f"**{data['geometric_means'][p]:.2f}**" for p in peers) + " |",
    ]
    for case, rows in cases.items():
        first = next(iter(rows.values()))
        ratios = " | ".join(f"{rows[p]['ratio']:.2f}" if p in rows else "" for p in peers)
        lines.append(f"| {case.replace('*', chr(92) + '*')} | {_time(first['ours_s'])} | "
                     f"{first['limit_share']:.0%} | {ratios} |")
    return "\n".join(lines)


def replace_figures(text: str, table: str) -> str:
    """Return `text` with `table` between the markers. Raises ValueError if they are missing."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"readme_table: cannot find {BEGIN} and {END}")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}"


@click.command()
@click.argument("json_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("readme", default="README.md",
                type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(json_file: Path, readme: Path) -> None:
    """Write the figures in JSON_FILE into README."""
    data = json.loads(json_file.read_text(encoding="utf-8"))
    text = readme.read_text(encoding="utf-8")
    readme.write_text(replace_figures(text, figures(data)), encoding="utf-8")


if __name__ == "__main__":
    main()
