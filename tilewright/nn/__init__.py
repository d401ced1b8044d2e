"""Neural network functions and optimisers, on plain tensors and trees of them."""

from tilewright.nn.activations import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    mish,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from tilewright.nn.attention import dropout, embedding, one_hot, scaled_dot_product_attention
from tilewright.nn.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tilewright.nn.losses import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from tilewright.nn.norms import batch_norm, group_norm, layer_norm, rms_norm
from tilewright.nn.optimizers import SGD, Adam, AdamW
from tilewright.nn.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

max_pool, avg_pool = max_pool2d, avg_pool2d

__all__ = [
    "SGD", "Adam", "AdamW", "avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm",
    "binary_cross_entropy_with_logits", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cross_entropy", "dropout", "elu", "embedding", "gelu",
    "group_norm", "layer_norm", "leaky_relu", "log_softmax", "max_pool", "max_pool1d", "max_pool2d",
    "max_pool3d", "mish", "mse_loss", "one_hot", "relu", "rms_norm",
    "scaled_dot_product_attention", "sigmoid", "silu", "softmax", "softplus",
]
