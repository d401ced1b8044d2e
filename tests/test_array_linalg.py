"""Products, against NumPy."""

import numpy as np
import pytest

import tilewright as tw

PAIRS = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
         ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (5, 3, 1)), ((2, 0), (0, 3)), ((0, 3), (3, 2)),
         ((3,), (2, 3, 4)), ((2, 2, 3), (3,)), ((1, 1), (1, 1)), ((1, 2, 4), (0, 4, 3)),
         ((0,), (0,))]


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float64", "bool", "float16"])
def test_matmul(left, right, dtype, rng):
    a = (rng.standard_normal(left) * 2).astype(dtype)
    b = (rng.standard_normal(right) * 2).astype(dtype)
    ours = tw.asarray(a) @ tw.asarray(b)
    wanted = a @ b
    assert ours.shape == wanted.shape
    assert ours.dtype == dtype
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(np.asarray(ours).astype(float), wanted.astype(float),
                               rtol=tolerance, atol=tolerance)


def test_matmul_promotes_and_mixes_with_numpy():
    a, b = np.arange(6).reshape(2, 3), np.ones((3, 2), "float32")
    assert (tw.asarray(a) @ b).dtype == tw.float32
    assert isinstance(a @ tw.asarray(b), tw.Tensor)
    assert (tw.ones((2, 3), dtype="bfloat16") @ tw.ones(3, dtype="bfloat16")).dtype == tw.bfloat16


@pytest.mark.parametrize("axes", [0, 1, 2, ([1, 0], [0, 1]), ([2], [0]), (0, 2)])
def test_tensordot(axes, rng):
    a, b = rng.standard_normal((2, 3, 3)), rng.standard_normal((3, 3, 2))
    if axes == ([1, 0], [0, 1]):
        b = rng.standard_normal((3, 2, 4))
    np.testing.assert_allclose(np.asarray(tw.tensordot(a, b, axes=axes)),
                               np.tensordot(a, b, axes=axes), rtol=1e-12)


def test_other_products(rng):
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4))
    np.testing.assert_allclose(np.asarray(tw.vecdot(a, b)), (a * b).sum(-1))
    np.testing.assert_allclose(np.asarray(tw.vecdot(a, b, axis=-2)), (a * b).sum(-2))
    np.testing.assert_allclose(np.asarray(tw.outer(a, b)), np.outer(a, b))
    for left, right in [(a, b.T), (b, a[0, 0]), (b[0], b[0]), (b, np.float64(2))]:
        np.testing.assert_allclose(np.asarray(tw.dot(left, right)), np.dot(left, right))


@pytest.mark.parametrize("offset", [-3, -1, 0, 2, 7])
def test_diagonal_and_trace(offset, rng):
    for shape in [(3, 3), (2, 4), (4, 2), (2, 3, 4), (0, 2)]:
        a = rng.standard_normal(shape)
        np.testing.assert_array_equal(np.asarray(tw.diagonal(a, offset=offset)),
                                      np.diagonal(a, offset, -2, -1))
        np.testing.assert_allclose(np.asarray(tw.trace(a, offset=offset)),
                                   np.trace(a, offset, -2, -1), atol=1e-12)


@pytest.mark.parametrize(("text", "shapes"), [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ij->ji", [(2, 3)]),
    ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("bij,bjk->bik", [(2, 2, 3), (2, 3, 4)]),
    ("i,j->ij", [(2,), (3,)]), ("ij->", [(2, 3)]), ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("i,i,i->", [(3,), (3,), (3,)]),
    ("...i->...", [(2, 3)]), ("abc,cd->abd", [(2, 1, 3), (3, 2)]), ("ij,ij->j", [(2, 3), (2, 3)]),
    ("iij->j", [(2, 2, 3)]), ("ij,jk,k->i", [(4, 3), (3, 5), (5,)]), ("ij,kl->l", [(2, 3), (4, 5)]),
    ("bi,ijk,bk->bj", [(4, 2), (2, 3, 5), (4, 5)]), ("i,j,k->ijk", [(2,), (3,), (4,)]),
    ("ij,jk,kl,lm,mn,n->i", [(2, 3), (3, 4), (4, 5), (5, 3), (3, 2), (2,)]),
    ("ai,bi,ci->abc", [(2, 1), (3, 6), (4, 6)]), ("ij,jk,kl->l", [(2, 0), (0, 3), (3, 4)]),
    ("...i,...ij,j->...", [(3, 4), (2, 3, 4, 5), (5,)])])
def test_einsum(text, shapes, rng):
    arrays = [rng.standard_normal(s) for s in shapes]
    np.testing.assert_allclose(np.asarray(tw.einsum(text, *arrays)), np.einsum(text, *arrays),
                               rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("text", "shapes", "flops"), [
    ("ij,jk,k->i", [(64, 64), (64, 64), (64,)], 4 * 64 ** 2),
    ("ij,jk->k", [(64, 64), (64, 32)], 64 ** 2 + 2 * 64 * 32),
    ("i,ij,jk,kl,l->", [(64,), (64, 64), (64, 64), (64, 64), (64,)], 6 * 64 ** 2 + 2 * 64)])
def test_einsum_takes_the_order_of_fewest_operations(text, shapes, flops):
    compiled = tw.jit(lambda *a: tw.einsum(text, *a)).compile(*(tw.ones(s) for s in shapes))
    assert sum(k.flops for k in compiled.kernels) <= 1.1 * flops
