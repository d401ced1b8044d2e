"""Sketches: named, parametrised lists of actions, and the default schedule made of them."""

from tilewright.actions.sketches.default import default_schedule

__all__ = ["default_schedule"]
