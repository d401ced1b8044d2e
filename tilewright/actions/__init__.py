"""Actions: frozen values that transform a kernel's loops, one file each, and schedules of them."""

from tilewright.actions.base import Action
from tilewright.actions.nest import Copy as CopyStage
from tilewright.actions.nest import Leaf, Loop, Nest, start
from tilewright.actions.schedule import ACTIONS, Schedule, parse_schedule
from tilewright.actions.sketches import Recipe, default_recipe, default_schedule

__all__ = ["ACTIONS", "Action", "CopyStage", "Leaf", "Loop", "Nest", "Recipe", "Schedule",
           "default_recipe",
           "default_schedule", "parse_schedule", "start"]
