"""Random graphs: fused kernels, evaluated in NumPy, give the graph's values."""

import random

from fusion_tools import Maker, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.limits import Limits

SMALL = Limits(l1=256, l2=1024, instruction_cap=640)  # rows do not fit, chains are cut early


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9), st.integers(1, 15))
def test_fused_kernels_agree_with_the_graph(seed, steps):
    check(*Maker(random.Random(seed)).grow(steps))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9), st.integers(5, 40))
def test_fused_kernels_agree_under_tight_limits(seed, steps):
    check(*Maker(random.Random(seed)).grow(steps), limits=SMALL)
