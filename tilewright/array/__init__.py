"""The frontend: `Tensor` and the functions of the array namespace."""

import tilewright.array.methods  # noqa: F401  gives Tensor its operators
