"""Random programs agree with NumPy: eager and jitted, on one and two threads, on each backend."""

import hypothesis
import pytest
from conftest import MODE_NAMES, MODES
from hypothesis import given
from hypothesis import strategies as st
from program_tools import programs

BACKENDS, THREADS = st.sampled_from(["llvm", "interpreter"]), st.sampled_from([1, 2])


@given(programs(), BACKENDS, THREADS)
@hypothesis.settings(max_examples=400)
def test_programs_agree_with_numpy(program, backend, threads):
    for jitted in (False, True):
        program.check(backend, threads, jitted)


@given(programs(most=6, large=True), st.booleans())
@hypothesis.settings(max_examples=100)
def test_programs_on_large_arrays_agree_with_numpy(program, jitted):
    program.check("llvm", 2, jitted)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES, ids=MODE_NAMES)
def test_a_thousand_programs_agree_with_numpy(mode):
    @given(programs())
    @hypothesis.settings(max_examples=1000, derandomize=False)
    def run(program):
        program.check(*mode)
    run()


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES[:4], ids=MODE_NAMES[:4])
def test_hundreds_of_programs_on_large_arrays_agree_with_numpy(mode):
    @given(programs(most=8, large=True))
    @hypothesis.settings(max_examples=300, derandomize=False)
    def run(program):
        program.check(*mode)
    run()
