"""The runtime: pooled memory, worker threads, native launch and timing."""

from tilewright.runtime.launch import Frame, Launch, Segment
from tilewright.runtime.memory import Allocator, Block, MemoryStats, allocator, trim_memory
from tilewright.runtime.storage import Storage
from tilewright.runtime.timer import time_frame

__all__ = ["Allocator", "Block", "Frame", "Launch", "MemoryStats", "Segment", "Storage",
           "allocator", "time_frame", "trim_memory"]
