"""Sketches: named, parametrised lists of actions; recipes of them; the default schedule."""

from tilewright.actions.sketches.base import Sketch
from tilewright.actions.sketches.recipe import Recipe, default_recipe, default_schedule

__all__ = ["Recipe", "Sketch", "default_recipe", "default_schedule"]
