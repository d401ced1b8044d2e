"""What a target can hold: the numbers that fusion, schedules and the search draw on."""

from dataclasses import dataclass

LINE = 64  # bytes of a cache line; outputs and scratch start at one


@dataclass(frozen=True)
class Limits:
    """Hardware facts of one device. Sizes in bytes.

    vector_bytes      one vector register
    registers         vector registers
    l1, l2, l3        data cache of one core, of one core, shared
    scratch_bytes     the most scratch memory one kernel may use per thread
    threads           worker threads that share a parallel loop
    instruction_cap   the most Program instructions of one kernel
    """

    vector_bytes: int = 32
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 16 << 20
    scratch_bytes: int = 32 << 20
    threads: int = 1
    instruction_cap: int = 60_000

    def lanes(self, itemsize: int) -> int:
        """Return how many elements of `itemsize` bytes one vector register holds."""
        return max(1, self.vector_bytes // itemsize)
