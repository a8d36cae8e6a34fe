"""Vectors: what they compute, at any address; code for 64-bit ARM; kernels without vectors."""

import json
import operator
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from parts import all_kernels

from polyadic.kernels import examples, jit, simd
from polyadic.kernels.examples import Form
from polyadic.kernels.simd import LANES, fill, load, root, store, total

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv]
needs_vectors = pytest.mark.skipif(not jit.VECTORS, reason="vectors are off: POLYADIC_SIMD=0")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_vector_operators_equal_those_of_numbers(op, dtype):
    @njit
    def run(a, b, out):
        for k in range(0, out.shape[0], LANES):
            store(out, k, op(load(a, k), root(load(b, k)) + fill(a, 2.0)))

    a, b = np.random.default_rng(0).uniform(1, 2, (2, 16)).astype(dtype)
    out = np.empty_like(a)
    run(a, b, out)
    eps = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, op(a, np.sqrt(b) + 2), rtol=eps, atol=eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_may_start_at_any_address_of_their_own_size(dtype):
    @njit
    def run(a, at, out):
        for k in range(0, 8, LANES):
            store(out, at + k, load(a, at + k))
            out[0] += total(load(a, at + k))

    a = np.arange(1, 33, dtype=dtype)
    for at in range(1, 17):
        out = np.zeros_like(a)
        run(a, at, out)
        np.testing.assert_array_equal(out[at : at + 8], a[at : at + 8])
        assert out[0] == a[at : at + 8].sum()
        assert np.count_nonzero(out) == 9  # and nothing beside them is written


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 4), (np.float64, 8)])
@needs_vectors
def test_code_assumes_the_alignment_of_one_number_and_no_more(dtype, size):
    @njit
    def run(a):
        store(a, 0, load(a, 8))

    a = np.zeros(16, dtype)
    run(a)
    code = run.inspect_llvm(run.signatures[0])
    bits = f"<8 x {'float' if size == 4 else 'double'}>"
    accesses = [line for line in code.splitlines() if ("load " in line or "store " in line)]
    wide = [line for line in accesses if bits in line]
    assert wide
    assert all(line.split(", align ")[1].split(",")[0] == str(size) for line in wide)


def test_tables_are_padded_to_whole_vectors_of_either_kind():
    for rank in range(1, 40):
        assert simd.padded(rank) >= rank
        assert simd.padded(rank) % simd.PAD == simd.PAD % LANES == 0


# ---- 64-bit ARM --------------------------------------------------------------------------------

# Kernel, and the vector instructions that it must consist of. `split_epoch` has all that
# `train_epoch` is made of, and threads besides.
_ARM_VECTORS = {
    "split_epoch": "4s",
    "normal_equations": "2d",
    "contract_hats": "4s",
}


@needs_vectors
def test_kernels_compile_for_arm_into_its_vector_instructions():
    # One test for all kernels: a process compiles them, and workers do not share it.
    place = Path(__file__).with_name("arm.py")
    run = subprocess.run([sys.executable, place, *_ARM_VECTORS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    for name, (text, assembly) in json.loads(run.stdout).items():
        assert "llvm.x86" not in text, name
        assert len(re.findall(rf"\bfmla\s+v\d+\.{_ARM_VECTORS[name]}", assembly)) > 10, name


# ---- without vectors ----------------------------------------------------------------------------

_PLAIN = """
import numpy as np
from polyadic import CPRegressor
from polyadic.kernels import simd
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
y = X[:, 0] * X[:, 1] + np.sin(X[:, 2])
model = CPRegressor(solver="adam", random_state=0, max_iter=3, n_members=1).fit(X, y)
print(simd.LANES, *model.predict(X[:50]))
"""


def test_models_agree_with_and_without_vectors():
    def fitted(simd):
        environment = {**os.environ, "POLYADIC_SIMD": simd}
        run = subprocess.run(
            [sys.executable, "-c", _PLAIN], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return np.array(run.stdout.split(), dtype=float)

    plain, wide = fitted("0"), fitted("1")
    assert (plain[0], wide[0]) == (1, 8)
    # Three epochs from one start: rounding errors stay small. Over 20 seeds the largest
    # difference was 2e-6, between CPU targets as between plain numbers and vectors.
    np.testing.assert_allclose(plain[1:], wide[1:], rtol=0, atol=1e-4)


# ---- every kernel has an example ----------------------------------------------------------------


def test_every_kernel_that_python_calls_has_an_example_and_runs_on_it():
    named = set()
    for kernel, args in examples.all_examples([Form()]):
        kernel(*args)
        named.add(kernel.py_func.__qualname__)
    assert named == {kernel.py_func.__qualname__ for kernel in all_kernels()}
