"""tilewright: a tensor compiler in Python.

The package is also an array namespace after the Python array API standard 2024.12.
"""

from math import e, inf, nan, pi

from tilewright import nn, random
from tilewright.array import tree
from tilewright.array.convert import asarray, from_dlpack
from tilewright.array.creation import (
    arange,
    array,
    astype,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    view_bits,
    zeros,
    zeros_like,
)
from tilewright.array.dtype_functions import (
    can_cast,
    finfo,
    iinfo,
    isdtype,
    promote_types,
    result_type,
)
from tilewright.array.elementwise import (
    abs,  # noqa: A004
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    copysign,
    cos,
    cosh,
    divide,
    divmod,  # noqa: A004
    equal,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    isclose,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    nan_to_num,
    negative,
    not_equal,
    positive,
    pow,  # noqa: A004
    reciprocal,
    remainder,
    round,  # noqa: A004
    rsqrt,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from tilewright.array.linalg import (
    diagonal,
    dot,
    einsum,
    matmul,
    outer,
    tensordot,
    trace,
    vecdot,
)
from tilewright.array.manipulate import (
    atleast_1d,
    atleast_2d,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flatten,
    flip,
    hstack,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    take,
    take_along_axis,
    tile,
    transpose,
    unstack,
    vstack,
)
from tilewright.array.reductions import (
    all,  # noqa: A004
    allclose,
    any,  # noqa: A004
    argmax,
    argmin,
    array_equal,
    average,
    count_nonzero,
    cummax,
    cummin,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    diff,
    logsumexp,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    nanmean,
    nansum,
    prod,
    std,
    sum,  # noqa: A004
    var,
)
from tilewright.array.searching import argsort, nonzero, searchsorted, sort, where
from tilewright.array.tensor import Tensor, block_until_ready
from tilewright.array.writes import put_along_axis
from tilewright.config import Tune, get_num_threads, set_num_threads, using
from tilewright.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilewright.dtypes import bool_ as bool  # noqa: A004
from tilewright.jit import grad, jit, value_and_grad, vjp
from tilewright.plan.tuning import tune
from tilewright.version import __version__

__array_api_version__ = "2024.12"
newaxis = None
bool_ = bool

# NumPy's spellings
absolute, power, concatenate, true_divide, mod = abs, pow, concat, divide, remainder
arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
arcsinh, arccosh, arctanh, invert = asinh, acosh, atanh, bitwise_invert
left_shift, right_shift, around = bitwise_left_shift, bitwise_right_shift, round

__all__ = [name for name in globals() if not name.startswith("_")]
