# SPDX-License-Identifier: MIT
"""Arrays and buffers of symm: what calls take and refuse, and DLPack."""

import array

import numpy as np
import pytest

import symm


def test_makers_of_arrays(alone):
    t = alone.world
    for x in (np.ones(3), array.array("d", [1, 1, 1]), bytearray(b"abc"),
              memoryview(bytearray(8)).cast("q"), np.ones((2, 3), np.float32)[1]):
        before = bytes(memoryview(x).cast("B")) if not isinstance(x, np.ndarray) else x.tobytes()
        t.all_reduce(x)
        after = bytes(memoryview(x).cast("B")) if not isinstance(x, np.ndarray) else x.tobytes()
        assert before == after


@pytest.mark.parametrize("x, error, text", [
    (np.ones((4, 4))[:, 1], symm.Invalid, "not contiguous"),
    (np.ones((4, 4)).T, symm.Invalid, "not contiguous"),
    (b"abc", symm.Invalid, "read-only"),
    (np.ones(3, complex), symm.Unsupported, "format"),
    (np.ones(3, ">f4"), symm.Unsupported, "format"),
    (np.array(["a"]), symm.Unsupported, "format"),
    ([1.0, 2.0], TypeError, "must be an array"),
    (None, TypeError, "must be an array"),
    (1.0, TypeError, "must be an array"),
])
def test_arrays_refused(alone, x, error, text):
    with pytest.raises(error, match=text):
        alone.world.all_reduce(x)
    alone.world.barrier()


def test_other_byte_order(alone):
    """numpy names the type of such an array as the machine's own, but for its type string."""

    class Wrapper:
        """An array that knows __array_interface__ alone."""

        def __init__(self, inner):
            self.inner, self.__array_interface__ = inner, inner.__array_interface__

    x = np.ones(3, ">f4")
    with pytest.raises(symm.Unsupported, match=">f4"):
        alone.world.all_reduce(Wrapper(x))
    wrapper = Wrapper(x)
    wrapper.dtype = x.dtype
    with pytest.raises(symm.Unsupported, match=">f4"):
        alone.world.all_reduce(wrapper)
    alone.world.all_reduce(Wrapper(np.ones(3, "<f4")))


def test_integers_of_numpy(alone):
    """A shape is often a product or an element of numpy's, which are no int of Python."""
    t = alone.world
    assert t.empty(np.prod((2, 3))).shape == (6,)
    assert t.empty(np.array([2, 3])).shape == (2, 3)
    assert t.empty((np.int32(2), 3), strides=(np.int64(4), 1)).strides == (4, 1)
    assert t.empty(3, alloc_id=np.uint64(7)).alloc_id == 7
    with symm.init(backend="host", rank=0, size=1, heap_bytes=np.int64(1 << 30)) as ctx:
        assert ctx.info.heap_bytes == 1 << 30


def test_read_only_input_is_fine(alone):
    out = bytearray(3)
    alone.world.all_reduce(b"abc", out)
    assert out == b"abc"


def test_dlpack_of_others(alone):
    class Wrapper:
        """An array that knows DLPack alone."""

        def __init__(self, inner):
            self.inner = inner

        def __dlpack__(self, **keywords):
            return self.inner.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.inner.__dlpack_device__()

    x = np.arange(6.0)
    out = np.zeros(6)
    alone.world.all_reduce(Wrapper(x), Wrapper(out))
    assert (out == x).all()
    with pytest.raises(symm.Invalid, match="not contiguous"):
        alone.world.all_reduce(Wrapper(np.ones((4, 4))[:, 1]))


def test_dlpack_export(alone):
    b = alone.world.empty((2, 3), "int32")
    a = np.from_dlpack(b)
    a[:] = 5
    assert (np.asarray(b) == 5).all() and b.__dlpack_device__() == (1, 0)
    capsule = b.__dlpack__()
    assert "dltensor" in repr(capsule)
    del capsule
    with pytest.raises(BufferError):
        b.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        b.__dlpack__(copy=True)


def test_strided_buffer(alone):
    b = alone.world.empty((4, 3), "float32", strides=(8, 1))
    a = np.asarray(b)
    assert a.strides == (32, 4) and b.strides == (8, 1)
    with pytest.raises(symm.Invalid, match="not contiguous"):
        alone.world.all_reduce(b)


def test_types_without_buffer_format(alone):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name, dtype in (("bfloat16", ml_dtypes.bfloat16),
                        ("float8_e4m3", ml_dtypes.float8_e4m3fn),
                        ("float8_e5m2", ml_dtypes.float8_e5m2)):
        b = alone.world.empty(4, name)
        a = b.as_numpy()
        assert a.dtype == dtype
        a[:] = 2
        alone.world.all_reduce(b)
        x = np.full(4, 2, dtype)
        alone.world.all_reduce(x)
        assert (x == a).all()
        with pytest.raises(BufferError, match="as_numpy"):
            memoryview(b)
        assert alone.world.empty(4, dtype).dtype == name


def test_other_8_bit_floats(alone):
    """Other formats of ml_dtypes are refused, one of which has libsymm's name for another one."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in "float8_e4m3", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4", "int4":
        dtype = getattr(ml_dtypes, name)
        for call in (lambda: alone.world.all_reduce(np.ones(4, dtype)),
                     lambda: alone.world.empty(4, dtype, site="f8"),
                     lambda: alone.world.empty(4, np.dtype(dtype), site="f8")):
            with pytest.raises(symm.Error, match=name):
                call()
    with pytest.raises(symm.Unsupported, match="float8_e4m3fn"):
        symm.dtype_size(ml_dtypes.float8_e4m3)
    assert symm.dtype_size("float8_e4m3") == symm.dtype_size(ml_dtypes.float8_e4m3fn) == 1


def test_shapes(alone):
    t = alone.world
    assert t.empty(5).shape == (5,) and t.empty(()).shape == () and t.empty([2, 3]).size == 6
    assert t.empty(0).nbytes == 0
    t.all_reduce(t.empty(0))
    for shape, error in (((-1,), symm.Error), ((1 << 62, 4), symm.Overflow),
                         ((1 << 50,), symm.Error), ((2,) * 17, symm.Invalid),
                         ("abc", TypeError), (1.5, TypeError), ((1, "a"), TypeError),
                         (1 << 70, OverflowError)):
        with pytest.raises(error):
            t.empty(shape)
    with pytest.raises(symm.Invalid, match="strides"):
        t.empty((2, 3), strides=(1,))
    with pytest.raises(symm.Error):
        t.empty((2, 3), strides=(-1, 1))
    with pytest.raises(symm.Invalid, match="dtype|unknown"):
        t.empty(3, "float31")
