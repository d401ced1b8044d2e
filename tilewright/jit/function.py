"""`jit`: compile a Python function of trees of arrays, once per signature."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.array.tensor import tracing
from tilewright.config import Config, Tune, current
from tilewright.errors import TraceError
from tilewright.graph import postorder
from tilewright.jit.binder import MISS, Binder, Donated
from tilewright.jit.capture import Fact
from tilewright.jit.places import Root
from tilewright.jit.signature import Signature, options
from tilewright.jit.trace import Trace, Traced, trace_lock
from tilewright.plan.inspect import Compiled
from tilewright.plan.plan import Plan, compile_graph

CACHE_LIMIT = 64  # traces kept per function; the one unused for longest goes first


@dataclass
class Variant:
    """One trace, compiled.

    ``call(args, kwargs, only_check)`` gives the result (None if it only checks), or MISS where the
    arguments or captured state differ from the trace's.
    """

    call: Callable[[tuple, dict, bool], Any]
    config: Config
    plan: Plan
    floats: list[Fact]  # captured ones
    seconds: float  # of tracing


class Jit:
    """A compiled function; made by `jit`.

    trace_count   how often the function was traced
    cache_size    traces kept
    """

    def __init__(self, function: Callable, static_argnums: Any = (), static_argnames: Any = (),
                 donate_argnums: Any = (), backend: str | None = None, tune: Any = None):
        if not callable(function):
            raise TraceError(f"jit: cannot compile {function!r} (needs a callable)")
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self._options = options(
            function, static_argnums, static_argnames, donate_argnums, self.name)
        self._changes: dict[str, Any] = {
            name: value for name, value in (("backend", backend), ("tune", tune))
            if value is not None}
        self._configs: tuple[Config | None, Config] = (None, current())  # in force, ours for it
        self._variants: list[Variant] = []
        self._promoted: set[tuple] = set()
        self._refused: set[tuple] = set()
        self.trace_count = 0
        functools.update_wrapper(self, function, updated=())

    def __set_name__(self, owner: type, name: str) -> None:
        self._options = replace(self._options, method=True)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if not self._options.method:  # inside another descriptor, a classmethod say
            self._options = replace(self._options, method=True)
        return BoundJit(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {self.name}, {self.cache_size} traces>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.get() is not None:
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        config = self._config()
        for variant in self._variants:
            if variant.config is not config:
                if variant.config != config:
                    continue
                variant.config = config  # recognised at once next time
            result = variant.call(args, kwargs, False)
            if result is not MISS:
                if variant is not self._variants[0]:
                    self._use(variant)
                return result
        return self._miss(args, kwargs, config)

    @property
    def cache_size(self) -> int:
        return len(self._variants)

    def cache_clear(self) -> None:
        """Forget every trace and its compiled kernels."""
        with trace_lock:
            self._variants = []
            self._promoted.clear()
            self._refused.clear()

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Return what a call with these arguments runs, without running it; traces if need be."""
        with trace_lock:
            variant = self._find(args, kwargs, self._config())
        return Compiled(variant.plan, variant.seconds)

    # signatures that are not in the cache

    def _config(self) -> Config:
        """Return the configuration in force, with the options of this function."""
        config = current()
        in_force, ours = self._configs
        if in_force is not config:
            ours = replace(config, **self._changes) if self._changes else config
            self._configs = config, ours
        return ours

    def _use(self, variant: Variant) -> None:
        """Move a variant to the front of the list."""
        others = [v for v in self._variants if v is not variant]
        self._variants = [variant, *others][:CACHE_LIMIT]

    def _miss(self, args: tuple, kwargs: dict, config: Config) -> Any:
        with trace_lock:
            variant = self._find(args, kwargs, config)
            result = variant.call(args, kwargs, False)
        if result is MISS:
            raise TraceError(f"jit: cannot call {self.name} (what it reads changes with every "
                             "look; pass it as an argument)")
        return result

    def _is_classmethod_of(self, owner: Any) -> bool:
        """Tell whether `owner` is a class that holds this function as a classmethod.

        From Python 3.13 on a classmethod calls what it holds without binding it first.
        """
        return isinstance(owner, type) and any(
            isinstance(v, classmethod) and v.__func__ is self
            for base in owner.__mro__ for v in vars(base).values())

    def _find(self, args: tuple, kwargs: dict, config: Config) -> Variant:
        """Return the variant that fits, made if need be; the lock is held."""
        if not self._options.method and args and self._is_classmethod_of(args[0]):
            self._options = replace(self._options, method=True)
        for variant in self._variants:
            if variant.config == config and variant.call(args, kwargs, True) is not MISS:
                break
        else:
            variant = self._make(args, kwargs, config)
        self._use(variant)
        return variant

    def _make(self, args: tuple, kwargs: dict, config: Config) -> Variant:
        """Trace and compile for these arguments; they and all captured state stay as they are."""
        self._promote_changed()
        signature = Signature(self._options, args, kwargs)
        start = time.perf_counter()
        traced = self._trace(signature)
        seconds = time.perf_counter() - start
        self.trace_count += 1
        binder = Binder(traced, signature.structure, signature.leaves,
                        signature.static.__contains__, signature.donated.__contains__)
        outputs = binder.plan_outputs()
        needed = {id(n) for n in postorder(outputs)}
        used = [h for h in traced.holes if id(h.node) in needed]
        plan = compile_graph(outputs, [h.node for h in used], config)
        call = binder.compile(used, plan.run, Donated(self.name), self.name)
        floats = [f for f in traced.facts if f.kind == "float"]  # the others hold on to values
        return Variant(call, config, plan, floats, seconds)

    def _trace(self, signature: Signature) -> Traced:
        promoted = frozenset(self._promoted)
        try:
            return self._settled(signature, promoted)
        except Exception:  # whatever the user's function does with a tensor it did not expect
            if not promoted:
                raise
        # a captured float may be needed as a Python float after all
        self._refused |= promoted
        self._promoted.clear()
        return self._settled(signature, frozenset())

    def _settled(self, signature: Signature, promoted: frozenset[tuple]) -> Traced:
        """Trace; once more if captured Python state changed, which must then stay as it is."""
        traced = self._run(signature, promoted)
        if not traced.changed:
            return traced
        try:
            again = self._run(signature, promoted)
            changed = again.changed
        except TraceError:
            changed = traced.changed
        if not changed:
            return again
        for fact in (*changed, *traced.changed):
            fact.undo()
        raise TraceError(f"jit: cannot change {changed[0].place.name} in {self.name} (a call would "
                         "not do it again; return the new value instead, or keep it in a tensor)")

    def _run(self, signature: Signature, promoted: frozenset[tuple]) -> Traced:
        function = self.__wrapped__  # type: ignore[attr-defined]
        roots = [Root(function, self.name)]
        roots += [Root(v, f"<{type(v).__name__}>") for v in signature.static_values()]
        trace = Trace(function, self.name, promoted)
        return trace.run(signature.leaves, signature.structure, signature.static, roots)

    def _promote_changed(self) -> None:
        """Let captured floats that differ from those of the last trace be inputs of the next."""
        for variant in self._variants[:1]:
            for fact in variant.floats:
                path = fact.place.path()
                if path not in self._refused and not fact.holds() \
                        and type(fact.place.get()) is float:
                    self._promoted.add(path)


class BoundJit:
    """A compiled method, bound to its instance."""

    __slots__ = ("_function", "_instance")

    def __init__(self, function: Jit, instance: Any):
        self._function, self._instance = function, instance

    @property
    def __self__(self) -> Any:
        return self._instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """See `Jit.compile`."""
        return self._function.compile(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def jit(function: Callable | None = None, *, static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (), donate_argnums: int | Sequence[int] = (),
        backend: str | None = None, tune: Tune | None = None) -> Any:
    """Compile `function`: trace it once per signature, then run the compiled plan.

    A signature is the tree structure of the arguments (tuples, lists, dicts, named tuples,
    dataclasses, None), shape and dtype of each tensor or NumPy array in it, and the values of
    static arguments (hashable). Python numbers are run-time values: a new value does not trace
    again, unless the function needs the value itself (``int(n)``, ``if n > 0``). Globals, closures
    and attributes that the function reads are checked at each call: tensors among them are read
    anew, a change of anything else traces again (see `jit.capture`). Writes to arguments (``x[i] =
    v``) and tensors assigned to captured variables take effect at each call, as without `jit`. The
    outputs are computed when the call returns and share no memory with NumPy arguments.

    static_argnums, static_argnames   arguments that are part of the signature
    donate_argnums                    arguments whose tensors may not be used afterwards
    backend                           "llvm" or "interpreter"; the one configured unless given
    tune                              search the kernels at the first call, ``tw.Tune(beam=4)``

    Works as a decorator, with or without options, also of methods (an instance counts by
    identity, its attributes are checked). Raises TraceError where tracing cannot be faithful.

    >>> import tilewright as tw
    >>> tw.jit(lambda x, n: x * n)(tw.asarray([1.0, 2.0]), 3).tolist()
    [3.0, 6.0]
    """
    def make(f: Callable) -> Jit:
        return Jit(f, static_argnums, static_argnames, donate_argnums, backend, tune)
    return make if function is None else make(function)

