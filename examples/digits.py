"""Train a small convolutional network on scanned digits.

    python examples/digits.py [--output digits.png] [--epochs 20]

The data are scikit-learn's 1,797 scans of 8 x 8 pixels; a quarter is held out and never trained on.
The whole training step (forward, gradient, Adam) is one jitted function. Prints the accuracy on the
held-out scans and draws those that were misread. Needs: pip install 'tilewright[examples]'
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tilewright as tw
from tilewright import nn

BATCH = 64
RATE = 2e-3  # falls to 0 along a cosine
Parameters = dict[str, Any]


def load(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (train images, test images, train labels, test labels): (n, 1, 8, 8) in 0..1, (n,)."""
    data = load_digits()
    images = (data.images[:, None] / 16.0).astype(np.float32)
    return tuple(train_test_split(images, data.target.astype(np.int64), test_size=0.25,
                                  random_state=seed, stratify=data.target))


def initialise(seed: int) -> Parameters:
    """Return the parameters: two convolutions and two linear layers, He's initialisation."""
    shapes = {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "hidden": (32 * 16, 64),
              "output": (64, 10)}
    keys = tw.random.split(tw.random.key(seed), len(shapes))
    parameters = {}
    for i, (name, shape) in enumerate(shapes.items()):
        inputs = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        weight = tw.random.normal(keys[i], shape) * (2.0 / inputs) ** 0.5
        parameters[name] = {"weight": weight, "bias": tw.zeros(shape[0 if len(shape) == 4 else 1])}
    return tw.block_until_ready(parameters)


def logits(parameters: Parameters, images: Any) -> Any:
    """(n, 1, 8, 8) -> (n, 10)."""
    x = images
    for name in ("conv1", "conv2"):
        layer = parameters[name]
        x = nn.relu(nn.conv2d(x, layer["weight"], layer["bias"], padding=1))
    x = tw.reshape(nn.max_pool(x, 2), (x.shape[0], -1))
    hidden, output = parameters["hidden"], parameters["output"]
    x = nn.relu(tw.matmul(x, hidden["weight"]) + hidden["bias"])
    return tw.matmul(x, output["weight"]) + output["bias"]


def loss(parameters: Parameters, images: Any, labels: Any) -> Any:
    return nn.cross_entropy(logits(parameters, images), labels)


def train(images: np.ndarray, labels: np.ndarray, epochs: int, seed: int,
          console: Console) -> Parameters:
    """Return trained parameters; shows a progress bar."""
    gradient = tw.value_and_grad(loss)

    @tw.jit
    def step(parameters: Parameters, state: Any, x: Any, y: Any,
             rate: float) -> tuple[Any, Parameters, Any]:
        value, gradients = gradient(parameters, x, y)
        parameters, state = nn.Adam(learning_rate=rate).update(gradients, state, parameters)
        return value, parameters, state

    parameters = initialise(seed)
    state = nn.Adam().init(parameters)
    rng = np.random.default_rng(seed)
    batches, done = len(images) // BATCH, 0
    columns = (TextColumn("[bold]training[/] epoch {task.fields[epoch]}"), BarColumn(),
               TextColumn("loss {task.fields[loss]:.4f}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=epochs * batches, epoch=0, loss=float("nan"))
        for epoch in range(epochs):
            order = rng.permutation(len(images))
            for chosen in order[:batches * BATCH].reshape(batches, BATCH):
                rate = RATE * 0.5 * (1 + np.cos(np.pi * done / (epochs * batches)))
                value, parameters, state = step(
                    parameters, state, tw.asarray(images[chosen]), tw.asarray(labels[chosen]),
                    float(rate))
                done += 1
                progress.advance(task)
            progress.update(task, epoch=epoch + 1, loss=value.item())
    return parameters


def draw(images: np.ndarray, labels: np.ndarray, read: np.ndarray, path: Path) -> None:
    """Draw the misread digits, each with what it is and what was read."""
    wrong = np.flatnonzero(read != labels)
    columns = 6
    rows = max(1, -(-len(wrong) // columns))
    figure, axes = plt.subplots(rows, columns, figsize=(1.5 * columns, 1.9 * rows + 0.6),
                                squeeze=False)
    figure.suptitle(f"{len(wrong)} of {len(labels)} digits misread")
    for axis in axes.flat:
        axis.axis("off")
    for axis, i in zip(axes.flat, wrong):
        axis.imshow(images[i, 0], cmap="gray_r")
        axis.set_title(f"{labels[i]} read as {read[i]}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


@click.command()
@click.option("--output", default="digits.png", show_default=True,
              type=click.Path(dir_okay=False, path_type=Path), help="Picture of misread digits.")
@click.option("--epochs", default=20, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
def main(output: Path, epochs: int, seed: int) -> None:
    """Train on scikit-learn's digits and draw the misread ones."""
    console = Console()
    started = time.perf_counter()
    train_images, test_images, train_labels, test_labels = load(seed)
    parameters = train(train_images, train_labels, epochs, seed, console)
    scores = tw.jit(logits)(parameters, tw.asarray(test_images))
    read = np.asarray(tw.argmax(scores, axis=1))
    accuracy = float((read == test_labels).mean())
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(test_images, test_labels, read, output)
    console.print(f"test accuracy {accuracy:.2%} ({int((read == test_labels).sum())} of "
                  f"{len(read)}) after {time.perf_counter() - started:.1f} s; misread digits: "
                  f"{output}", highlight=False)


if __name__ == "__main__":
    main()
