"""What of a search is compared where a kernel is used."""

from __future__ import annotations

from tilewright.actions import parse_schedule
from tilewright.actions.stream import StreamStore
from tilewright.search.record import Record, Trial


def contenders(record: Record) -> list[Trial]:
    """Return what may replace the given schedule: the winner of a search, if there is one.

    And where that writes past the caches, the fastest that does not: a search cannot know that the
    next kernel reads what it writes.
    """
    if not record.winner:
        return []
    best = record.best
    if not streams(best):
        return [best]
    near = [t for t in record.trials[1:] if t.samples and not streams(t)
            and t.seconds < record.start.seconds]
    return [best, *sorted(near, key=lambda t: t.seconds)[:1]]


def streams(trial: Trial) -> bool:
    """Return whether a trial's schedule writes an output past the caches."""
    return any(isinstance(a, StreamStore) for a in parse_schedule(trial.schedule).actions)
