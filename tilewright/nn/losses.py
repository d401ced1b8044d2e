"""Losses; `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

from tilewright.array import build as b
from tilewright.array import elementwise as e
from tilewright.array import reductions as r
from tilewright.array.convert import ArrayLike, asarray
from tilewright.array.tensor import Tensor
from tilewright.errors import ShapeError
from tilewright.nn.activations import log_softmax, softplus


def _reduced(name: str, losses: Tensor, reduction: str) -> Tensor:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{name}: cannot reduce by {reduction!r} ('mean', 'sum' or 'none')")
    if reduction == "none":
        return losses
    return r.sum(losses) if reduction == "sum" else r.mean(losses)


def mse_loss(x: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Tensor:
    """Return the squared difference of x and target."""
    gap = asarray(x) - target
    return _reduced("mse_loss", gap * gap, reduction)


def binary_cross_entropy_with_logits(x: ArrayLike, target: ArrayLike, *,
                                     reduction: str = "mean") -> Tensor:
    """Return -log of the probability that sigmoid(x) gives to `target` (0 to 1)."""
    logits = asarray(x)
    losses = softplus(logits) - logits * target
    return _reduced("binary_cross_entropy_with_logits", losses, reduction)


def cross_entropy(logits: ArrayLike, target: ArrayLike, *, weight: ArrayLike = None,
                  ignore_index: int = -100, label_smoothing: float = 0.0,
                  reduction: str = "mean") -> Tensor:
    """Return -log softmax(logits) at the target class: (classes,) or (batch, classes, ..).

    `target` holds integer classes, without the class axis, or probabilities of the logits' shape.
    Elements whose class is `ignore_index` do not count. `weight` has one factor per class; the mean
    is over the sum of the targets' weights.
    """
    scores, wanted = asarray(logits), asarray(target)
    axis = 0 if scores.ndim == 1 else 1
    rest = scores.shape[:axis] + scores.shape[axis + 1:]
    floats = wanted.dtype.is_float
    if not scores.ndim or wanted.shape != (scores.shape if floats else rest):
        raise ShapeError(f"cross_entropy: cannot compare {scores.dtype}{list(scores.shape)} with "
                         f"target {wanted.dtype}{list(wanted.shape)} (needs integers of shape "
                         f"{list(rest)}, or probabilities of the logits' shape)")
    logs = log_softmax(scores, axis=axis)
    classes = scores.shape[axis]
    factors = None if weight is None else asarray(weight).reshape(
        *(classes if d == axis else 1 for d in range(scores.ndim)))
    smooth = label_smoothing / classes if classes else 0.0
    if floats:
        shares = wanted.astype(logs.dtype) * (1 - label_smoothing) + smooth
        terms = logs * shares if factors is None else logs * shares * factors
        losses = -r.sum(terms, axis=axis)
        total = asarray(float(losses.size))
    else:
        places = Tensor(b.iota(classes, wanted.dtype, axis, scores.ndim))
        lifted = wanted.reshape(*rest[:axis], 1, *rest[axis:])
        chosen = lifted == places
        weighted = logs if factors is None else logs * factors
        losses = -r.sum(e.select(chosen, weighted, 0), axis=axis)
        if label_smoothing:
            losses = losses * (1 - label_smoothing) - smooth * r.sum(weighted, axis=axis)
        counted = wanted != ignore_index
        losses = e.select(counted, losses, 0)
        share = 1 if factors is None else r.sum(e.select(chosen, factors, 0), axis=axis)
        total = r.sum(e.select(counted, share, 0).astype(logs.dtype))
    if reduction == "mean":
        return r.sum(losses) / total
    return _reduced("cross_entropy", losses, reduction)
