"""The handle: laziness, values, conversions, copies, exchange."""

import copy
import pickle

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import postorder


def test_nothing_runs_until_a_value_is_asked_for():
    x = tw.asarray(np.arange(3.0))
    y = x * 2 + 1
    assert y._node.op.name != "buffer"
    assert y.tolist() == [1.0, 3.0, 5.0]
    assert y._node.op.name == "buffer"  # the graph behind it is gone


def test_realising_keeps_what_other_graphs_share():
    x = tw.asarray(np.arange(3.0))
    shared = tw.exp(x) * 3
    later = shared + 1
    first = shared.numpy()
    later.block_until_ready()
    leaf = shared._node
    again = tw.exp(x) * 3 + 1  # interned: the same node as before, its value is known
    assert again.tolist() == later.tolist()
    assert leaf.op.name == "buffer"
    np.testing.assert_array_equal(first + 1, later.numpy())


def test_block_until_ready_of_a_tree():
    tree = {"a": [tw.ones(2) + 1, (tw.zeros(1) - 1, 5)], "b": None}
    assert tw.block_until_ready(tree) is tree
    assert tree["a"][0]._node.op.name == tree["a"][1][0]._node.op.name == "buffer"


def test_attributes():
    x = tw.zeros((2, 3), dtype=tw.int16)
    assert (x.shape, x.ndim, x.size, x.nbytes, x.itemsize, x.device) == ((2, 3), 2, 6, 12, 2, "cpu")
    assert x.to_device("cpu") is x
    assert len(x) == 2
    assert x.T.shape == (3, 2)
    assert tw.zeros((4, 2, 3)).mT.shape == (4, 3, 2)
    assert x.__array_namespace__() is tw


def test_numpy_is_a_read_only_view():
    x = tw.asarray(np.arange(6.0).reshape(2, 3)) + 1
    a, b = np.asarray(x), x.numpy()
    assert a.__array_interface__["data"] == b.__array_interface__["data"]
    assert not a.flags.writeable
    owned = np.array(x)
    owned[0] = 9
    assert x[0, 0].item() == 1
    assert np.asarray(x, dtype="float32").dtype == np.float32
    with pytest.raises(ValueError, match="without a copy"):
        x.__array__(dtype=np.float32, copy=False)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64"])
def test_scalars(dtype):
    x = tw.asarray(1, dtype=dtype)
    assert bool(x) is True
    assert (int(x), float(x), complex(x)) == (1, 1.0, 1 + 0j)
    assert type(x.item()) is type(x.tolist())
    assert x.numpy().shape == ()
    assert bool(tw.ones((1, 1)))


def test_index_protocol():
    assert [10, 20, 30][tw.asarray(1)] == 20
    assert list(range(5))[tw.asarray(1):tw.asarray(3)] == [1, 2]


def test_printing():
    assert repr(tw.asarray([1.0, 2.0])) == "Tensor([1., 2.], dtype=float32)"
    assert repr(tw.zeros((0, 2))) == "Tensor([], shape=(0, 2), dtype=float32)"
    assert str(tw.asarray([1, 2])) == "[1 2]"
    assert f"{tw.asarray(1.5):.2f}" == "1.50"
    assert "..." in repr(tw.zeros(5000))


def test_iteration():
    assert [row.tolist() for row in tw.asarray([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


def test_handles_do_not_alias():
    x = tw.zeros(3)
    y, z, flat = x, x.copy(), x.reshape(3, 1)
    x[1] = 5
    assert y is x
    assert z.tolist() == [0, 0, 0]
    assert flat.tolist() == [[0], [0], [0]]
    assert x.tolist() == [0, 5, 0]
    x.fill(2)
    assert x.tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", ["bool", "int32", "bfloat16", "float32"])
def test_copies_and_pickles(dtype):
    x = tw.asarray([[0, 1, 2]], dtype=dtype) + tw.asarray(0, dtype=dtype)
    for twin in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy()):
        assert twin is not x
        assert twin.dtype == x.dtype
        assert twin.tolist() == x.tolist()
        twin[0, 0] = 1
        assert not x[0, 0].item()


def test_numpy_arrays_are_copied_unless_sharing_is_asked_for():
    a = np.zeros(3)
    copied, shared = tw.asarray(a), tw.asarray(a, copy=False)
    a[0] = 7
    assert copied.tolist() == [0, 0, 0]
    assert shared.tolist() == [7, 0, 0]
    assert tw.asarray(copied) is copied
    assert tw.asarray(copied, copy=True) is not copied


def test_dlpack_out():
    x = tw.asarray(np.arange(6.0).reshape(2, 3))
    assert x.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(x)
    np.testing.assert_array_equal(shared, x.numpy())
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(x).tolist() == x.tolist()
    assert tw.from_dlpack(torch.arange(4).reshape(2, 2).T).tolist() == [[0, 2], [1, 3]]


def test_a_long_chain_of_eager_steps_keeps_no_graph():
    x = tw.zeros(2)
    for _ in range(300):
        x = x + 1
        x.block_until_ready()
    assert len(postorder([x._node])) == 1
    assert x.tolist() == [300, 300]


def test_deep_graphs_are_released_and_evaluated():
    x = tw.asarray([1.0])
    for _ in range(8000):
        x = x * 0.5 + 1.0
    assert x.item() == 2.0


def test_trees():
    from collections import OrderedDict, namedtuple

    from tilewright import tree
    point = namedtuple("point", "x y")
    for other in (OrderedDict(a=point(2, 3), b=1), [point(1, ())], 5, None, {1: 2, "a": 3}):
        leaves, structure = tree.flatten(other)
        assert tree.unflatten(structure, leaves) == other
        assert type(tree.unflatten(structure, leaves)) is type(other)
    nested = {"b": (1, [2, None]), "a": 3}
    leaves, structure = tree.flatten(nested)
    assert leaves == [3, 1, 2]
    assert tree.unflatten(structure, leaves) == nested
    assert str(structure) == "{'a': *, 'b': (*, [*, None])}"
    assert hash(structure) == hash(tree.flatten({"a": 0, "b": (0, [0, None])})[1])
    assert tree.map_tree(lambda a, b: a + b, nested, nested) == {"b": (2, [4, None]), "a": 6}
    with pytest.raises(ValueError, match="structures differ"):
        tree.map_tree(lambda a, b: a, [1], (1,))


def test_weak_tensors_promote_as_python_numbers():
    from tilewright.graph import constant
    number = tw.Tensor(constant(2.5, tw.float64), weak=True)
    for dtype in ("float16", "float32", "float64"):
        assert (tw.ones(2, dtype=dtype) * number).dtype == dtype
    assert (tw.ones(2, dtype="int32") + (-number * 2)).dtype == tw.float32
    assert tw.clip(tw.ones(2), -number, number).dtype == tw.float32
    assert tw.full(2, number).dtype == tw.float32


def test_numpy_functions_that_call_methods():
    x = tw.asarray(np.arange(6.0).reshape(2, 3))
    for function in (np.sum, np.mean, np.max, np.prod, np.argmax):
        result = function(x, axis=1)
        assert isinstance(result, tw.Tensor)
        np.testing.assert_allclose(result, function(np.asarray(x), axis=1))


def test_arguments_that_numpy_takes_by_position():
    x = np.arange(6.0).reshape(2, 3)
    for ours, wanted in [
            (tw.sum(x, 0), x.sum(0)), (tw.mean(x, 1), x.mean(1)), (tw.concat([x, x], 1), np.hstack(
                [x, x])), (tw.take(x, [0], 1), x[:, :1]), (tw.triu(x, 1), np.triu(x, 1)),
            (tw.zeros((2, 3), "float64"), x * 0), (tw.flip(x, 0), x[::-1]),
            (tw.tensordot(x, x.T, 1), x @ x.T), (tw.asarray(x, "int32"), x.astype("int32"))]:
        np.testing.assert_array_equal(ours, wanted)
        assert ours.dtype == wanted.dtype
