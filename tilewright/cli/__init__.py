"""The command line: ``tilewright bench``, ``tilewright doctor``, ``tilewright kernels SCRIPT``."""

from tilewright.cli.main import main

__all__ = ["main"]
