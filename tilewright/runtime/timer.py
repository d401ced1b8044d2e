"""Timing of native segments: samples are taken inside one native call by the monotonic clock."""

from __future__ import annotations

from math import ceil

import numpy as np

from tilewright.runtime.launch import Frame

LEAST_SPAN = 20e-6  # seconds; shorter runs repeat within a sample


def time_frame(frame: Frame, repeats: int, warm: int = 1) -> np.ndarray:
    """Return `repeats` durations in seconds of one run each, after `warm` runs that do not count.

    Runs shorter than 20 us repeat within a sample, whose mean is taken.
    """
    if repeats < 1:
        raise ValueError(f"time: cannot take {repeats} samples (at least 1)")
    if warm > 1:
        frame.time(1, warm - 1)
    span = float(frame.time(1)[0])  # the first look may still be cold: look again where it matters
    if span < LEAST_SPAN:
        span = float(frame.time(1, 4)[0])
    inner = max(1, ceil(LEAST_SPAN / max(span, 1e-9))) if span < LEAST_SPAN else 1
    return frame.time(repeats, inner)
