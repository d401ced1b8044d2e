"""Default schedules of many common operations beside torch's; prints a table, JSON with --out.

    python bench/breadth.py [--threads N] [--filter WORD] [--out FILE] [--seconds S]

The benchmark table of the command line has few kernels and looks at each closely. This has many, so
that a kind of kernel whose default schedule is bad shows. Runs of the two take turns; a figure is
the median. Values are compared first. Needs torch (the extra `peers`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import tilewright as tw
from tilewright.config import using

LEAST, MOST = 5, 101  # runs of each
TOLERANCE = 2e-3  # of the greatest value: sums of thousands of float32, in other orders

functional = torch.nn.functional


@dataclass(frozen=True)
class Case:
    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable
    theirs: Callable


def softmax(x, axis):
    e = tw.exp(x - tw.max(x, axis=axis, keepdims=True))
    return e / tw.sum(e, axis=axis, keepdims=True)


def log_sum_exp(x, axis):
    most = tw.max(x, axis=axis, keepdims=True)
    return tw.log(tw.sum(tw.exp(x - most), axis=axis)) + tw.squeeze(most, axis)


def normalise(x, axis):
    x = x - tw.mean(x, axis=axis, keepdims=True)
    return x / tw.sqrt(tw.mean(x * x, axis=axis, keepdims=True) + 1e-5)


def torch_normalise(x, axis):
    x = x - x.mean(axis, keepdim=True)
    return x / torch.sqrt((x * x).mean(axis, keepdim=True) + 1e-5)


def scaled(x, axis):
    low, high = tw.min(x, axis=axis, keepdims=True), tw.max(x, axis=axis, keepdims=True)
    return (x - low) / (high - low)


def torch_scaled(x, axis):
    low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    return (x - low) / (high - low)


def squared_distances(x):
    return tw.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)


def forces(p):
    d = p[None, :, :] - p[:, None, :]
    return tw.sum(d / (tw.sum(d * d, axis=-1, keepdims=True) + 0.01) ** 1.5, axis=1)


def torch_forces(p):
    d = p[None] - p[:, None]
    return (d / ((d * d).sum(-1, keepdim=True) + 0.01) ** 1.5).sum(1)


def attention(q, k, v):
    return tw.matmul(softmax(tw.matmul(q, tw.matrix_transpose(k)) * 0.125, -1), v)


def complex_product(a, b):
    return tw.stack([a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1],
                     a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]], axis=-1)


def torch_complex_product(a, b):
    return torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b))


def cross(a, b):
    return tw.stack([a[:, 1] * b[:, 2] - a[:, 2] * b[:, 1], a[:, 2] * b[:, 0] - a[:, 0] * b[:, 2],
                     a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]], axis=-1)


def rotated(lib_concat, x, c, s):
    a, b = x[..., :32], x[..., 32:]
    return lib_concat([a * c - b * s, a * s + b * c], -1)


def laplacian(a):
    return a[1:-1, 1:-1] * 4 - a[:-2, 1:-1] - a[2:, 1:-1] - a[1:-1, :-2] - a[1:-1, 2:]


N = 2048
SQUARE, IMAGES, CUBE = (N, N), (32, 64, 32, 32), (64, 128, 256)


def reductions() -> list[Case]:
    found = []
    for axis in (0, 1):
        found += [
            Case(f"mean {axis}", (SQUARE,), lambda x, a=axis: tw.mean(x, axis=a),
                 lambda x, a=axis: x.mean(a)),
            Case(f"max {axis}", (SQUARE,), lambda x, a=axis: tw.max(x, axis=a),
                 lambda x, a=axis: x.amax(a)),
            Case(f"argmax {axis}", (SQUARE,), lambda x, a=axis: tw.argmax(x, axis=a),
                 lambda x, a=axis: x.argmax(a)),
            Case(f"var {axis}", (SQUARE,), lambda x, a=axis: tw.var(x, axis=a),
                 lambda x, a=axis: x.var(a, unbiased=False)),
            Case(f"log sum exp {axis}", (SQUARE,), lambda x, a=axis: log_sum_exp(x, a),
                 lambda x, a=axis: x.logsumexp(a)),
            Case(f"cumulative sum {axis}", (SQUARE,),
                 lambda x, a=axis: tw.cumulative_sum(x, axis=a), lambda x, a=axis: x.cumsum(a)),
            Case(f"any {axis}", (SQUARE,), lambda x, a=axis: tw.any(x > 3, axis=a),
                 lambda x, a=axis: (x > 3).any(a)),
        ]
    for size in (3, 4, 8, 10, 32):
        found += [
            Case(f"sum of {size}", ((N * N // size, size),), lambda x: tw.sum(x, axis=-1),
                 lambda x: x.sum(-1)),
            Case(f"softmax of {size}", ((N * N // size, size),), lambda x: softmax(x, -1),
                 lambda x: x.softmax(-1)),
            Case(f"tanh of sum of {size}", ((N * N // size, size),),
                 lambda x: tw.tanh(tw.sum(x, axis=-1)), lambda x: x.sum(-1).tanh()),
        ]
    return [*found,
            Case("sum middle", (CUBE,), lambda x: tw.sum(x, axis=1), lambda x: x.sum(1)),
            Case("sum outer, inner", (CUBE,), lambda x: tw.sum(x, axis=(0, 2)),
                 lambda x: x.sum((0, 2))),
            Case("variance of all", (SQUARE,), tw.var, lambda x: x.var(unbiased=False)),
            Case("mean of images", (IMAGES,), lambda x: tw.mean(x, axis=(2, 3)),
                 lambda x: x.mean((2, 3)))]


def normalisations() -> list[Case]:
    found = []
    for axis in (0, 1):
        found += [
            Case(f"softmax {axis}", (SQUARE,), lambda x, a=axis: softmax(x, a),
                 lambda x, a=axis: x.softmax(a)),
            Case(f"layer norm {axis}", (SQUARE,), lambda x, a=axis: normalise(x, a),
                 lambda x, a=axis: torch_normalise(x, a)),
            Case(f"minimum, maximum {axis}", (SQUARE,), lambda x, a=axis: scaled(x, a),
                 lambda x, a=axis: torch_scaled(x, a)),
        ]
    return [*found,
            Case("batch norm", (IMAGES,), lambda x: normalise(x, (0, 2, 3)),
                 lambda x: functional.batch_norm(x, None, None, training=True)),
            Case("softmax middle", (CUBE,), lambda x: softmax(x, 1), lambda x: x.softmax(1)),
            Case("max pool 2", (IMAGES,), lambda x: tw.nn.max_pool2d(x, 2),
                 lambda x: functional.max_pool2d(x, 2)),
            Case("max pool 3 by 2", ((1, 64, 112, 112),),
                 lambda x: tw.nn.max_pool2d(x, 3, stride=2, padding=1),
                 lambda x: functional.max_pool2d(x, 3, 2, 1))]


def products() -> list[Case]:
    return [
        Case("vector, matrix", ((N,), SQUARE), tw.matmul, torch.matmul),
        Case("matrix, vector", (SQUARE, (N,)), tw.matmul, torch.matmul),
        Case("vector, layer norm", ((N,), SQUARE), lambda v, x: tw.matmul(v, normalise(x, 1)),
             lambda v, x: v @ torch_normalise(x, 1)),
        Case("relu of product", (SQUARE, (N, 512)), lambda a, b: tw.maximum(tw.matmul(a, b), 0),
             lambda a, b: (a @ b).relu()),
        Case("product, sum 0", (SQUARE, (N, 512)), lambda a, b: tw.sum(tw.matmul(a, b), axis=0),
             lambda a, b: (a @ b).sum(0)),
        Case("product, sum 1", (SQUARE, (N, 512)), lambda a, b: tw.sum(tw.matmul(a, b), axis=1),
             lambda a, b: (a @ b).sum(1)),
        Case("gram", ((64, 4096),), lambda a: tw.matmul(a, a.T), lambda a: a @ a.T),
        Case("tall, narrow", ((4096, 256), (256, 8)), tw.matmul, torch.matmul),
        Case("batch 64x64", ((256, 64, 64), (256, 64, 64)), tw.matmul, torch.matmul),
        Case("batch 4x4", ((4096, 4, 4), (4096, 4, 4)), tw.matmul, torch.matmul),
        Case("attention", ((8, 128, 64),) * 3, attention,
             functional.scaled_dot_product_attention),
        Case("one query", ((8, 1, 64), (8, 1024, 64), (8, 1024, 64)), attention,
             functional.scaled_dot_product_attention),
        Case("outer", ((N,), (N,)), lambda a, b: a[:, None] * b[None, :], torch.outer),
        Case("gaussian kernel", ((512, 64),), lambda x: tw.exp(-0.01 * squared_distances(x)),
             lambda x: torch.exp(-0.01 * torch.cdist(x, x) ** 2)),
        Case("forces", ((1024, 3),), forces, torch_forces),
        Case("three factors", ((256, 64), (64, 64, 64), (256, 64)),
             lambda x, w, y: tw.einsum("bi,ijk,bk->bj", x, w, y),
             lambda x, w, y: torch.einsum("bi,ijk,bk->bj", x, w, y)),
        Case("convolution 3x3", ((1, 64, 56, 56), (64, 64, 3, 3)),
             lambda x, w: tw.nn.conv2d(x, w, padding=1),
             lambda x, w: functional.conv2d(x, w, padding=1)),
        Case("convolution by 2", ((8, 32, 64, 64), (64, 32, 3, 3)),
             lambda x, w: tw.nn.conv2d(x, w, stride=2),
             lambda x, w: functional.conv2d(x, w, stride=2)),
    ]


def movements() -> list[Case]:
    orders = ((0, 2, 1), (1, 0, 2), (2, 1, 0))
    return [
        *(Case(f"permute {order}", (CUBE,), lambda x, o=order: tw.permute_dims(x, o) + 1,
               lambda x, o=order: (x.permute(o) + 1).contiguous()) for order in orders),
        Case("channels last", (IMAGES,), lambda x: tw.permute_dims(x, (0, 2, 3, 1)) + 1,
             lambda x: (x.permute(0, 2, 3, 1) + 1).contiguous()),
        Case("heads first", ((64, 128, 32, 64),), lambda x: tw.permute_dims(x, (0, 2, 1, 3)) + 1,
             lambda x: (x.permute(0, 2, 1, 3) + 1).contiguous()),
        Case("transpose, add", (SQUARE, SQUARE), lambda a, b: a.T + b, lambda a, b: a.T + b),
        Case("flip", (SQUARE,), lambda x: tw.flip(x, axis=1) + 1, lambda x: x.flip(1) + 1),
        Case("roll", (SQUARE,), lambda x: tw.roll(x, 3, axis=1) + 1, lambda x: x.roll(3, 1) + 1),
        Case("every second", (SQUARE,), lambda x: x[:, ::2] + 1, lambda x: x[:, ::2] + 1),
        Case("pairs added", (SQUARE,), lambda x: x[:, ::2] + x[:, 1::2],
             lambda x: x[:, ::2] + x[:, 1::2]),
        Case("every sixteenth", (SQUARE,), lambda x: x[:, ::16] + 1, lambda x: x[:, ::16] + 1),
        Case("laplacian", (SQUARE,), laplacian, laplacian),
        Case("stack last", (SQUARE, SQUARE), lambda a, b: tw.stack([a, b], axis=-1),
             lambda a, b: torch.stack([a, b], -1)),
        Case("concatenate", (SQUARE, SQUARE), lambda a, b: tw.concat([a, b], axis=1),
             lambda a, b: torch.cat([a, b], 1)),
        Case("repeat", (SQUARE,), lambda x: tw.repeat(x, 2, axis=1),
             lambda x: x.repeat_interleave(2, 1)),
        Case("complex product", ((N * N // 4, 2),) * 2, complex_product, torch_complex_product),
        Case("cross", ((N * 128, 3),) * 2, cross, torch.linalg.cross),
        Case("rotary", ((8, 512, 8, 64), (512, 1, 32), (512, 1, 32)),
             lambda x, c, s: rotated(lambda p, a: tw.concat(p, axis=a), x, c, s),
             lambda x, c, s: rotated(torch.cat, x, c, s)),
        Case("lower triangle", (SQUARE,), tw.tril, torch.tril),
        Case("where", (SQUARE, SQUARE), lambda a, b: tw.where(a > b, a, b * 2),
             lambda a, b: torch.where(a > b, a, b * 2)),
        Case("tanh", (SQUARE,), tw.tanh, torch.tanh),
        Case("sine", (SQUARE,), tw.sin, torch.sin),
    ]


def measured(case: Case, seconds: float) -> dict:
    """Return medians of both in seconds, and by how much their values differ."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, dtype=np.float32) for s in case.shapes]
    ours, theirs = [tw.asarray(a) for a in arrays], [torch.from_numpy(a).clone() for a in arrays]
    function = tw.jit(case.ours)
    got, wanted = np.asarray(function(*ours)), case.theirs(*theirs).numpy()
    if got.shape != wanted.shape:
        raise SystemExit(f"breadth: {case.name} is {got.shape}, torch's {wanted.shape}")
    apart = float(np.max(np.abs(got.astype(float) - wanted), initial=0.0))
    if apart > TOLERANCE * max(1.0, float(np.max(np.abs(wanted), initial=0.0))):
        raise SystemExit(f"breadth: {case.name} is {apart} from torch's")
    runs: dict[str, list[float]] = {"ours": [], "torch": []}
    end = time.perf_counter() + seconds
    while len(runs["ours"]) < LEAST or (time.perf_counter() < end and len(runs["ours"]) < MOST):
        for name, call in (("ours", lambda: function(*ours)),
                           ("torch", lambda: case.theirs(*theirs))):
            start = time.perf_counter()
            call()
            runs[name].append(time.perf_counter() - start)
    return {"case": case.name, "apart": apart,
            **{name: statistics.median(times) for name, times in runs.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--filter", default="")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each operation")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    with using(threads=options.threads):
        for case in (*reductions(), *normalisations(), *products(), *movements()):
            if options.filter in case.name:
                rows.append(row := measured(case, options.seconds))
                ours, theirs = row["ours"] * 1e6, row["torch"] * 1e6
                print(f"{row['case']:24s} {ours:9.1f} us   torch {theirs:9.1f}"
                      f"   {theirs / ours:6.2f}", flush=True)
    if rows:
        ratios = [r["torch"] / r["ours"] for r in rows]
        mean = statistics.geometric_mean(ratios)
        print(f"{len(rows)} operations, torch / ours {mean:.2f} in the "
              f"geometric mean, {min(ratios):.2f} to {max(ratios):.2f}")
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
