"""How good the search is on this machine; prints JSON.

    python bench/search_quality.py bare            from plain loops, sketches' defaults withheld
    python bench/search_quality.py table           every kernel of `tilewright bench`, with sketches
    python bench/search_quality.py repeat          five searches of each kernel
    python bench/search_quality.py random          a random search over sketch parameters
    python bench/search_quality.py compare         no search: what other runs found

Six kernels, but for `table`; --all takes every kernel, --filter WORDS those with all the words,
--half 1 and --half 2 every other one. Options: --threads N, --seconds N, --beam N, --out FILE.
Schedules kept by `--out` files are yardsticks of later runs when named with --best; those under
`bench/expert` always are. With --like FILE a random search times 20 times (--times) what the search
of that file's row compiled, or all there is.
All candidates of one kernel are timed again at the end, alternating, in several processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.actions import Schedule, default_recipe, parse_schedule
from tilewright.backends import backend
from tilewright.cli.bench.cases import kernels
from tilewright.cli.bench.libraries import Tilewright
from tilewright.config import using
from tilewright.errors import Illegal, TooLarge
from tilewright.fusion.alternatives import preferred
from tilewright.limits import Limits
from tilewright.lower import lower
from tilewright.plan.kernels import Target
from tilewright.search import Budget, Code, Record, search
from tilewright.search.candidates import forms
from tilewright.search.decide import midmean
from tilewright.search.device import CpuMeasurer
from tilewright.search.measurer import Failure
from tilewright.search.model import estimate
from tilewright.search.near import near
from tilewright.search.traffic import predict

EXPERT = Path(__file__).parent / "expert"
SIX = ("matmul 512", "sum 4096x4096", "permute 1024x1024", "conv 3x3 batch 32 16->32",
       "softmax 4096x1024", "vecmat 1024x4096")
PROCESSES, PLACES = 3, 3  # where all are timed again
AT_ONE_PLACE = 1.0  # seconds
LEAST_TURNS, MOST_TURNS = 3, 51
LOST = 2000  # random walks that end where others did
FASTEST = 3  # schedules of a random search that are timed again


@dataclass(frozen=True)
class Choice:
    """A schedule of one of the kernel's forms."""

    alternative: int
    schedule: Schedule


def kernels_of(case, threads: int):
    """Return the kernels that a case of the bench table is made of."""
    library = Tilewright()
    arrays = [tw.asarray(a) for a in case.inputs()]
    with using(threads=threads, disk_cache=False):
        compiled = tw.jit(lambda *a: case.function(library, *a)).compile(*arrays)
        return [k.built.origin for k in compiled.kernels]


def given(kernel, limits: Limits) -> Choice:
    """Return the schedule that a kernel has without search."""
    form = preferred(kernel, limits)
    number = next(i for i, f in enumerate(forms(kernel, limits)) if f.key == form.key)
    return Choice(number, default_recipe(form, limits).schedule(form, limits))


def code_of(kernel, choice: Choice, limits: Limits, device: CpuMeasurer,
            models: list[float] | None = None) -> Code | None:
    """Return a schedule's code, None where it cannot be had; `models` gains both estimates."""
    form = forms(kernel, limits)[choice.alternative]
    try:
        nest = choice.schedule.apply(form)
        low = lower(nest, limits)
    except (Illegal, TooLarge):
        return None
    if models is not None:
        models += [predict(nest, limits), estimate(low.programs, nest, limits).cycles]
    llvm = backend("llvm")
    (code,) = device.compile([llvm.render(low.programs, low.binding)])
    if isinstance(code, Failure):
        return None
    return Code(code, low.binding, tuple(p.parallel for p in low.programs))


def alternate(kernel, choices: list[Choice], limits: Limits, target: Target) -> list[float]:
    """Return each choice's seconds; inf where it fails.

    Samples are taken in turns at several places of the buffers, in several processes, since code
    and buffers are faster on some pages than on others, and speed drifts. A choice counts by the
    mean, over places but the best and worst, of its ratio to all choices together there.
    """
    found = np.concatenate([in_process(kernel, choices, limits, target, seed)
                            for seed in range(PROCESSES)])
    fine = np.isfinite(found).all(axis=0)
    level = np.exp(np.log(found[:, fine]).mean(axis=1))
    ratios = [midmean(column) for column in (found / level[:, None]).T]
    return [float(r * np.median(level)) for r in ratios]


def in_process(kernel, choices: list[Choice], limits: Limits, target: Target, seed: int
               ) -> np.ndarray:
    """Return medians of each choice (columns) at each place (rows), in a process of their own."""
    rng = random.Random(seed)
    rows = []
    with CpuMeasurer(target) as device:
        codes = [code_of(kernel, c, limits, device) for c in choices]
        first = next(c for c in codes if c is not None)
        device.begin(kernel, first)
        handles = [None if c is None else device.link(c) for c in codes]
        for place in range(PLACES):
            if place:
                device.move()
            samples: list[list[float]] = [[] for _ in choices]
            end = time.perf_counter() + AT_ONE_PLACE
            for turn in range(MOST_TURNS):
                if turn >= LEAST_TURNS and time.perf_counter() > end:
                    break
                for i in rng.sample(range(len(choices)), len(choices)):
                    sample = device.sample(handles[i]) if isinstance(handles[i], int) else None
                    samples[i].append(sample if isinstance(sample, float) else float("inf"))
            rows.append([float(np.median(s)) for s in samples])
    return np.array(rows)


def searched(kernel, start: Choice, limits: Limits, target: Target, budget: Budget, seed: int = 0
             ) -> tuple[Record, Choice]:
    with CpuMeasurer(target) as device:
        record = search(kernel, start.schedule, backend("llvm"), limits, device, budget,
                        time.perf_counter, alternative=start.alternative, seed=seed)
    return record, Choice(record.best.alternative, parse_schedule(record.best.schedule))


def random_recipes(kernel, limits: Limits, seed: int):
    """Yield schedules of random walks over sketch parameters, from the default's.

    Walks get longer while they end where others did; after `LOST` such in a row there are no more.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    around: dict[str, list] = {}
    options = list(enumerate(forms(kernel, limits)))
    lost = 0
    while lost < LOST:
        number, form = rng.choice(options)
        recipe = default_recipe(form, limits)
        for _ in range(rng.randint(1, 10 + lost // 20)):
            text = f"{number} {recipe}"
            if text not in around:
                around[text] = near(recipe, form, limits)
            recipe = rng.choice(around[text] or [recipe])
        lost += 1
        if (text := f"{number} {recipe}") in seen:
            continue
        seen.add(text)
        lost = 0
        try:
            yield Choice(number, recipe.schedule(form, limits))
        except Illegal:
            continue


def random_search(kernel, limits: Limits, target: Target, count: int, seconds: float, seed: int
                  ) -> tuple[list[Choice], list[list[float]]]:
    """Return the fastest schedules, and (nest model, Program model, seconds) of all timed."""
    best: list[tuple[float, Choice]] = []
    timed: list[list[float]] = []
    end = time.perf_counter() + seconds
    with CpuMeasurer(target) as device:
        device.begin(kernel, code_of(kernel, given(kernel, limits), limits, device))
        for found in random_recipes(kernel, limits, seed):
            if time.perf_counter() > end or len(timed) == count:
                break
            models: list[float] = []
            code = code_of(kernel, found, limits, device, models)
            handle = None if code is None else device.link(code)
            if not isinstance(handle, int):
                continue
            sample = device.sample(handle)
            if not isinstance(sample, Failure) and (not best or sample < 1.3 * best[0][0]):
                more = device.samples(handle, 4)
                sample = min(sample, *(more if not isinstance(more, Failure) else []))
            if not isinstance(sample, Failure):
                timed.append([*models, sample])
                best = sorted([*best, (sample, found)], key=lambda b: b[0])[:FASTEST]
            device.drop(handle)
    return [choice for _, choice in best], timed


def rank(cycles: list[float], seconds: list[float]) -> dict[str, float]:
    """Return Spearman's correlation of a model with times, and the fastest's place in its order."""
    if len(seconds) < 3:
        return {}
    model = np.argsort(np.argsort(cycles, kind="stable"))
    times = np.argsort(np.argsort(seconds, kind="stable"))
    return {"timed": len(seconds), "spearman": round(float(np.corrcoef(model, times)[0, 1]), 3),
            "fastest_at": round(float(model[int(np.argmin(seconds))]) / (len(seconds) - 1), 3)}


def summary(record: Record) -> dict:
    timed = [t for t in record.trials if t.samples and t.cycles]
    model = rank([t.cycles for t in timed], [t.seconds for t in timed])
    return {"seconds": {k: round(v, 2) for k, v in record.seconds.items()},
            "counts": record.counts, "rounds": len(record.rounds) - 1, "why": record.why,
            "gain": round(record.gain, 3), "duel": record.duel, "model": model,
            "winner": [record.best.alternative, record.best.schedule]}


def experts(name: str, kernel, limits: Limits) -> list[Choice]:
    """Return the hand-picked schedules of a case: its own files, the form in their first line."""
    found = []
    for path in sorted(EXPERT.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        head, _, body = text.partition("\n")
        if head.removeprefix("# ").rpartition(" form ")[0] == name:
            choice = Choice(int(head.rpartition(" ")[2]), parse_schedule(body))
            try:
                choice.schedule.apply(forms(kernel, limits)[choice.alternative])
            except Illegal as reason:
                print(f"{path.name}: {reason}", file=sys.stderr)
                continue
            found.append(choice)
    return found


def rows_of(file: str, case: str, number: int) -> list[dict]:
    return [row for row in json.loads(Path(file).read_text())
            if row["case"] == case and row["kernel"] == number]


def best_of(files: list[str], case: str, number: int) -> list[Choice]:
    return [Choice(place, parse_schedule(text)) for file in files
            for row in rows_of(file, case, number) for place, text in row["winners"]]


def one(case, number: int, kernel, options, limits: Limits, target: Target) -> dict:
    """Return one row: searches as asked for, then all winners timed against each other."""
    row: dict = {"case": case.name, "kernel": number, "threads": limits.threads,
                 "load": round(os.getloadavg()[0], 1)}
    start = given(kernel, limits)
    choices = {"default": start}
    if options.mode == "random":
        count = options.count
        if options.like:
            count = options.times * max(found["counts"]["compiled"] for row in rows_of(
                options.like, case.name, number) for found in row["searches"])
        fastest, timed = random_search(kernel, limits, target, count, options.seconds, options.seed)
        choices |= {f"random{i}": choice for i, choice in enumerate(fastest)}
        row["asked"] = count
        if timed:
            guesses, cycles, seconds = map(list, zip(*timed))
            row["nest_model"], row["model"] = rank(guesses, seconds), rank(cycles, seconds)
    elif options.mode != "compare":
        bare = options.mode == "bare"
        budget = Budget(beam=options.beam, seconds=options.seconds,
                        sketches="bare" if bare else "default")
        first = Choice(0, Schedule()) if bare else start
        runs = 5 if options.mode == "repeat" else 1
        row["searches"] = []
        for seed in range(runs):
            began = time.process_time()
            record, choice = searched(kernel, first, limits, target, budget, options.seed + seed)
            row["searches"].append(summary(record))
            row["searches"][-1]["seconds"]["own_cpu"] = round(time.process_time() - began, 2)
            choices[f"search{seed}"] = choice
            if options.records:
                Path(options.records).mkdir(exist_ok=True)
                name = f"{case.name}-{number}-{options.mode}{seed}.txt".replace(" ", "_")
                (Path(options.records) / name.replace("/", "_")).write_text(record.explain())
    for i, choice in enumerate(experts(case.name, kernel, limits) if number == 0 else []):
        choices[f"expert{i}"] = choice
    for i, choice in enumerate(best_of(options.best, case.name, number)):
        choices[f"best{i}"] = choice
    distinct = {(c.alternative, str(c.schedule)): c for c in choices.values()}
    times = dict(zip(distinct, alternate(kernel, list(distinct.values()), limits, target)))
    seconds = {k: times[c.alternative, str(c.schedule)] for k, c in choices.items()}
    least = min(times.values())
    row["us"] = {k: round(s * 1e6, 2) for k, s in seconds.items()}
    row["over_best"] = {k: round(s / least, 3) for k, s in seconds.items()}
    row["winners"] = [(c.alternative, str(c.schedule)) for k, c in choices.items()
                      if k.startswith(("search", "random"))]
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("bare", "table", "repeat", "random", "compare"))
    parser.add_argument("--filter", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--half", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=Budget.seconds)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--like", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--best", nargs="*", default=[])
    parser.add_argument("--records", default="")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    limits = replace(backend("llvm").limits, threads=options.threads)
    target = Target("llvm", limits)
    words = options.filter.lower().split()
    rows = []
    chosen = kernels()[options.half - 1::2] if options.half else kernels()
    for case in chosen:
        if not all(w in case.name.lower() for w in words):
            continue
        every = options.all or words or options.mode == "table"
        if not every and case.name not in SIX:
            continue
        for number, kernel in enumerate(kernels_of(case, options.threads)):
            rows.append(one(case, number, kernel, options, limits, target))
            found = {k: v for k, v in rows[-1].items() if k != "winners"}
            print(json.dumps(found), file=sys.stderr, flush=True)
            if options.out:
                Path(options.out).write_text(json.dumps(rows, indent=1))
    if not options.out:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
