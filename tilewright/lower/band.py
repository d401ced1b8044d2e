"""The register band of a leaf: its innermost vectorised and interleaved loops."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.actions.nest import BAND, Loop, Nest, nominal


@dataclass
class Band:
    """The register loops around a leaf."""

    loops: tuple[Loop, ...]
    vector: str | None
    lanes: int

    @property
    def jams(self) -> list[str]:
        return [loop.name for loop in self.loops if loop.kind == "interleave"]


def band_of(nest: Nest, leaf: str) -> Band:
    """Return the band of a leaf: its innermost vectorised and interleaved loops."""
    loops = [loop for loop in nest.paths[leaf] if loop.kind in BAND]
    vector = next((loop.name for loop in loops if loop.kind == "vectorize"), None)
    lanes = 1 if vector is None else 1 << (nominal(nest, vector) - 1).bit_length()
    return Band(tuple(loops), vector, lanes)
