"""Schedules: lists of actions that print, parse and replay."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from tilewright.actions.base import Action
from tilewright.actions.copy import Copy
from tilewright.actions.grid import Block, Lane, Thread
from tilewright.actions.interleave import Interleave
from tilewright.actions.merge import Merge
from tilewright.actions.nest import Nest, start
from tilewright.actions.parallel import Parallel
from tilewright.actions.partition import Partition
from tilewright.actions.place import Place
from tilewright.actions.reorder import Reorder
from tilewright.actions.split import Split
from tilewright.actions.stream import StreamStore
from tilewright.actions.unroll import Unroll
from tilewright.actions.vectorize import Vectorize
from tilewright.errors import ScheduleError
from tilewright.kernel import Kernel

ACTIONS: dict[str, type[Action]] = {a.__name__: a for a in (
    Split, Reorder, Merge, Vectorize, Interleave, Unroll, Parallel, Place, Copy, Partition,
    StreamStore, Block, Thread, Lane)}

# what a field's annotation asks of an argument
_ARGUMENTS: dict[str, tuple[type, str]] = {
    "str": (str, "a name"), "int": (int, "an integer"),
    "tuple[str, ...]": (tuple, "a list in brackets")}

_CALL = re.compile(r"(\w+)\(((?:[^()]|\([^()]*\))*)\)")


@dataclass(frozen=True)
class Schedule:
    """A list of actions. Two schedules are the same when their nests print the same."""

    actions: tuple[Action, ...] = ()

    def apply(self, kernel: Kernel) -> Nest:
        """Return the kernel's nest after every action. Raises Illegal at the first that fails."""
        nest = start(kernel)
        for action in self.actions:
            nest = action.apply(nest)
        return nest

    def then(self, *actions: Action) -> Schedule:
        return Schedule((*self.actions, *actions))

    def __str__(self) -> str:
        return "\n".join(map(str, self.actions))


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that prints as `text`; lines starting with # are comments.

    Raises ScheduleError naming the action that does not parse.
    """
    actions = []
    body = "\n".join(line.split("#")[0] for line in text.splitlines())
    rest = _CALL.sub("", body).strip()
    if rest:
        raise ScheduleError(f"schedule: cannot parse {rest.splitlines()[0]!r} "
                            "(needs Action(argument, ..))")
    for name, arguments in _CALL.findall(body):
        actions.append(_parse_action(name, arguments))
    return Schedule(tuple(actions))


def _parse_action(name: str, text: str) -> Action:
    kind = ACTIONS.get(name)
    if kind is None:
        raise ScheduleError(f"schedule: cannot find action {name} (actions: {' '.join(ACTIONS)})")
    arguments: list[object] = []
    for group, word in re.findall(r"\(([^()]*)\)|([^(),\s]+)", text):
        if word:
            arguments.append(int(word) if word.isdigit() else word)
        else:
            arguments.append(tuple(w.strip() for w in group.split(",") if w.strip()))
    wanted = fields(kind)
    if len(arguments) != len(wanted):
        raise ScheduleError(f"schedule: cannot read {name}({text}) "
                            f"(needs {', '.join(f.name for f in wanted)})")
    for field, argument in zip(wanted, arguments):
        needed, words = _ARGUMENTS[str(field.type)]
        if not isinstance(argument, needed):
            raise ScheduleError(f"schedule: cannot read {name}({text}) ({field.name} is {words})")
    return kind(*arguments)
