"""Every exception that tilewright raises on purpose.

Messages read ``operation: cannot A to B (reason)`` with full shapes and dtypes, then a hint.
"""


class TilewrightError(Exception):
    """Base of all errors raised on purpose."""


class ShapeError(TilewrightError, ValueError):
    """Shapes, axes or sizes do not fit the operation."""


class DTypeError(TilewrightError, TypeError):
    """Dtypes do not fit the operation."""


class IndexOutOfBounds(TilewrightError, IndexError):
    """An index lies outside its axis."""


class TraceError(TilewrightError, TypeError):
    """A traced function used a value, or changed state, in a way that cannot be honoured."""


class GradientError(TilewrightError, TypeError):
    """An operation without a gradient was differentiated, or the output is not a real scalar."""


class ScheduleError(TilewrightError, ValueError):
    """A schedule text does not parse, or does not belong to the kernel it is given to."""


class RecordError(TilewrightError, ValueError):
    """Records that cannot be read, or a name that does not name one record."""


class Illegal(TilewrightError):
    """An action that cannot be applied to this nest; the reason is the message."""


class TooLarge(TilewrightError):
    """A program passed the instruction cap while it was being emitted."""


class ScheduleWarning(RuntimeWarning):
    """The default schedule of a kernel failed and plain loops run in its place: our fault."""


class VerifyError(TilewrightError):
    """An intermediate representation broke one of its rules; names the pass that broke it."""


class BackendError(TilewrightError):
    """Rendering, compiling, loading or launching failed in a backend."""
