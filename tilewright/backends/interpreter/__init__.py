"""The interpreter: executes Programs in NumPy, exactly as `tilewright.program.ir` defines them.

It is the reference for rendering and compiling, and it checks what native code takes on trust:
bounds of every access, alignments, divisors, barriers, races. Undefined memory holds NaN, -1 or
True. Workers and blocks run one after another; the threads of a block run in lockstep, from barrier
to barrier, and threads of a warp are not special.

Not modelled: the order of memory operations between barriers (any race is an error instead), warp
shuffles and votes, asynchronous copies, atomics, cache effects (prefetches and streaming stores do
nothing special), and how a fragment's elements are spread over lanes.
"""

from tilewright.backends.interpreter.backend import Interpreter
from tilewright.backends.interpreter.executable import Executable, execute

__all__ = ["Executable", "Interpreter", "execute"]
