"""The group of commands."""

from __future__ import annotations

import click

import tilewright as tw
from tilewright.cli.bench.command import bench
from tilewright.cli.doctor import doctor
from tilewright.cli.kernels import kernels
from tilewright.cli.records import records
from tilewright.cli.tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tw.__version__, prog_name="tilewright")
def main() -> None:
    """tilewright: tensors to native kernels."""


for _command in (bench, doctor, kernels, records, tune):
    main.add_command(_command)
