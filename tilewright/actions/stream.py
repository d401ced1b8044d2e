"""Write past the caches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.actions.base import Action
from tilewright.actions.nest import Nest
from tilewright.errors import Illegal


@dataclass(frozen=True)
class StreamStore(Action):
    """Store an output with non-temporal writes, whole aligned vectors only.

    Pays where nobody reads the output soon; the next reader finds it in memory, not in cache.
    """

    buffer: str

    def apply(self, nest: Nest) -> Nest:
        found = nest.kernel.buffer.get(self.buffer)
        if found is None or found.kind != "output":
            raise Illegal(f"stream: cannot stream {self.buffer} (not an output of the kernel)")
        if any(s.combine for stage in nest.kernel.stages for s in stage.stores
               if s.buffer == self.buffer) or nest.kernel.readers(self.buffer):
            raise Illegal(f"stream: cannot stream {self.buffer} (the kernel reads it back)")
        if found.part:
            raise Illegal(f"stream: cannot stream {self.buffer} (a part of an array, which starts "
                          "anywhere: whole aligned vectors are needed)")
        return replace(nest, streams=tuple(sorted({*nest.streams, self.buffer})))
