"""The gradients of the digits example's network, against PyTorch's."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


def example():
    path = Path(__file__).parent.parent / "examples" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_loss(parameters, images, labels):
    x = images
    functional = torch.nn.functional
    for name in ("conv1", "conv2"):
        layer = parameters[name]
        x = functional.relu(functional.conv2d(x, layer["weight"], layer["bias"], padding=1))
    x = functional.max_pool2d(x, 2).reshape(x.shape[0], -1)
    hidden, output = parameters["hidden"], parameters["output"]
    x = functional.relu(x @ hidden["weight"] + hidden["bias"])
    return functional.cross_entropy(x @ output["weight"] + output["bias"], labels)


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_agree_with_torch(threads):
    digits = example()
    images, _, labels, _ = digits.load(0)
    images, labels = images[:64], labels[:64]
    parameters = digits.initialise(3)
    with tw.using(threads=threads):
        value, gradients = tw.jit(tw.value_and_grad(digits.loss))(parameters, images, labels)
        value = float(value)
    leaves = {k: {n: torch.tensor(np.asarray(t), requires_grad=True) for n, t in layer.items()}
              for k, layer in parameters.items()}
    expected = torch_loss(leaves, torch.tensor(images), torch.tensor(labels))
    expected.backward()
    assert abs(value - expected.item()) <= 1e-5 * abs(expected.item())
    for name, layer in leaves.items():
        for part, leaf in layer.items():
            ours, theirs = np.asarray(gradients[name][part]), leaf.grad.numpy()
            assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max(), (name, part)
