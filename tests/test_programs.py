"""Random programs agree with NumPy: eager and jitted, on one and two threads, on each backend."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_tools import programs

MODES = [(backend, threads, jitted) for backend in ("llvm", "interpreter") for threads in (1, 2)
         for jitted in (False, True)]


@given(programs(), st.sampled_from(MODES))
def test_programs_agree_with_numpy(program, mode):
    program.check(*mode)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES, ids=lambda m: f"{m[0]}-{m[1]}-{'jit' if m[2] else 'eager'}")
def test_a_thousand_programs_agree_with_numpy(mode):
    @given(programs())
    @hypothesis.settings(max_examples=1000)
    def run(program):
        program.check(*mode)
    run()
