"""erf, in float32 and float64.

Near 0 it is x + x P(x*x). Further out float32 takes 1 - exp(P(x)), the minimax polynomial of
log(erfc); float64 takes 1 - exp(-x*x) g(t) with g one in t = (x - 2) / (x + 2). All by Remez
exchange, the error weighted by what it adds to erf.
"""

from __future__ import annotations

from tilewright.lower.math.exponential import exp
from tilewright.lower.math.number import Number, copysign, fma, polynomial, where

_NEAR32 = (0.12837916612625122, -0.37612631916999817, 0.11283687502145767, -0.026858942583203316,
           0.0051999082788825035, -0.0008130018832162023, 8.316768798977137e-05)
_FAR32 = (0.0001603902201168239, -1.1294339895248413, -0.6335436701774597, -0.1080116480588913,
          0.024894945323467255, -0.004053307231515646, 0.0003966449585277587,
          -1.4300218026619405e-05, -5.22726963936293e-07)
_NEAR64 = (0.1283791670955126, -0.3761263890318375, 0.11283791670954858, -0.02686617064507296,
           0.00522397762478137, -0.0008548326978765149, 0.00012055331037551105,
           -1.4925593518728184e-05, 1.646097295415313e-06, -1.6350026192071057e-07,
           1.4657883530880742e-08, -1.1365670671686118e-09, 5.94525558399848e-11)
_FAR64 = (0.25539567631050575, -0.42718584741395826, 0.24165819424245824, -0.07897858101587554,
          0.003732892405154546, 0.006997461763495303, -0.000847143195265716,
          -0.0009819781219344427, 4.354935885454822e-05, 0.0001743693223388443,
          2.7666077368851217e-05, -2.7312309294157386e-05, -1.4597804230014401e-05,
          -1.619881945672964e-06)


def erf(x: Number) -> Number:
    single = x.dtype.bits == 32
    size = x.abs().min(3.95 if single else 6.0)
    limit = 0.93 if single else 1.0
    z = size * size
    near = fma(size, polynomial(z.min(limit * limit), _NEAR32 if single else _NEAR64), size)
    if single:
        far = 1.0 - exp(polynomial(size, _FAR32))
    else:
        far = 1.0 - exp(-z) * polynomial((size - 2.0) / (size + 2.0), _FAR64)
    return copysign(where(size < limit, near, far), x)
