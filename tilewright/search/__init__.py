"""Search: finds the fastest schedule of a kernel by timing real candidates, and remembers it."""

from tilewright.search.beam import Budget, search
from tilewright.search.decide import Rules
from tilewright.search.measurer import Code, Failure, Measurer
from tilewright.search.record import Record, Trial

__all__ = ["Budget", "Code", "Failure", "Measurer", "Record", "Rules", "Trial", "search"]
