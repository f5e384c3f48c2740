"""Arrays and tensors of all kinds on their way into a session and out again: what is copied, what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from session.functions import Affine, function_of, identity
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import eqsat_layout
from eqsat_layout.errors import InputError
from eqsat_layout.session.feed import fed_tensors
from eqsat_layout.session.interface import Interface


def test_what_a_user_writes_into_a_result_changes_no_input_and_no_constant() -> None:
    def body(emit: Any, x: Any) -> Any:
        constant = R.const(np.arange(6, dtype="float32"))
        return relax.Tuple([x, constant, emit(R.reshape(x, (3, 2))), x])

    session = eqsat_layout.Session(function_of(body, (6,)))
    x = aligned((6,), "float32")
    for _ in range(4):
        x[:] = 7
        results = session.run(None, {"x": x})
        assert [one.ravel().tolist() for one in results] == [[7.0] * 6, list(range(6)), [7.0] * 6, [7.0] * 6]
        for number, one in enumerate(results):
            one[...] = -number
        assert x.tolist() == [7.0] * 6
        assert [one.ravel()[0] for one in results] == [0.0, -1.0, -2.0, -3.0]


def test_results_of_branches_are_copied() -> None:
    @I.ir_module
    class Branch:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            if c:
                y: R.Tensor((3,), "float32") = R.add(x, x)
            else:
                y: R.Tensor((3,), "float32") = R.const([1.0, 2.0, 3.0], "float32")
            return y

    session = eqsat_layout.Session(Branch)
    x = np.ones(3, "float32")
    for c in (True, True, False, False, False):
        (got,) = session.run(None, {"c": np.array(c), "x": x})
        assert got.tolist() == ([2.0] * 3 if c else [1.0, 2.0, 3.0])
        got[:] = -1


def aligned(shape: tuple[int, ...], dtype: str, off: int = 0) -> Any:
    """An array at an address that 64 divides, ``off`` elements after it."""
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 256, "uint8")
    start = -raw.ctypes.data % 64 + off * np.dtype(dtype).itemsize
    return raw[start : start + int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)


def test_an_aligned_array_is_not_copied_on_its_way_in() -> None:
    session = identity((8, 4), "float32")
    x = aligned((8, 4), "float32")
    interface = replace(session._interface, any_address=False)  # which takes whole vectors only
    for value in (x, tvm.runtime.from_dlpack(x)):
        (tensor,) = fed_tensors({"x": value}, interface, {})
        assert tensor.data_ptr() == x.ctypes.data


def test_a_result_is_given_on_without_a_copy() -> None:
    session = eqsat_layout.Session(function_of(lambda emit, x: emit(relax.op.negative(x)), (8, 4), "float32"))
    for _ in range(2):  # of the first run it is not known yet whose memory results have
        (result,) = session.run(None, {"x": np.ones((8, 4), "float32")})
    assert not result.flags.owndata  # the memory is TVM's
    assert tvm.runtime.from_dlpack(result).data_ptr() == np.from_dlpack(result).ctypes.data == result.ctypes.data


def test_what_an_input_is_copied_to_is_used_again_but_given_to_nobody() -> None:
    """Fresh memory for each run of an array at an odd address took longer than the copy."""
    session = identity((1000,), "float32")
    x = aligned((1000,), "float32", off=4)
    results = []
    for number in range(4):
        x[:] = number
        results.append(session.run(None, {"x": x})[0])
    assert [result[0] for result in results] == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)])
def test_arrays_of_every_kind_arrive_and_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    whole = np.random.default_rng(0).integers(0, 2, tuple(2 * e for e in shape)).astype(kind)
    strided = np.asarray(whole[tuple(slice(None, None, 2) for _ in shape)])
    session = identity(shape, dtype)
    frozen = np.array(strided)
    frozen.flags.writeable = False
    swapped = strided.astype(kind.newbyteorder(">")) if dtype != "bfloat16" else strided
    for value in (strided, np.array(strided), np.array(strided, order="F"), frozen, swapped):
        (got,) = session.run(None, {"x": value})
        assert got.dtype == kind
        assert got.shape == shape
        np.testing.assert_array_equal(got, strided)


def test_tensors_at_odd_addresses_are_read_where_they_lie() -> None:
    """NumPy's mostly begin 16 bytes after where vectors begin, and the copy took longer than a small kernel."""
    x = aligned((8, 16), "float32", off=1)
    x[...] = np.arange(128).reshape(8, 16)
    assert x.ctypes.data % 64

    def body(emit: Any, v: Any) -> Any:
        views = emit(R.reshape(emit(R.reshape(v, (4, 2, 16))), (16, 8)))  # TVM makes no copies of these
        return relax.Tuple([emit(R.add(emit(R.sum(v, 0)), v)), emit(R.sum(views, 0)), emit(R.sum(views, 1))])

    session = eqsat_layout.Session(function_of(body, (8, 16)))
    views = x.reshape(16, 8)
    for got, wanted in zip(session.run(None, {"x": x}), (x.sum(0) + x, views.sum(0), views.sum(1)), strict=True):
        np.testing.assert_array_equal(got, wanted)
    interface = session._interface
    (tensor,) = fed_tensors({"x": x}, interface, {})
    assert tensor.data_ptr() == x.ctypes.data
    (tensor,) = fed_tensors({"x": x}, replace(interface, any_address=False), {})  # of a library that was made before
    assert tensor.data_ptr() % 64 == 0
    told = json.loads(interface.to_json())
    assert told.pop("any_address")
    assert not Interface.from_json(json.dumps(told)).any_address


def test_numbers_and_lists_are_arrays() -> None:
    assert identity((), "int64").run(None, {"x": 3})[0] == 3
    assert identity((2,), "float64").run(None, {"x": [1.0, 2.0]})[0].tolist() == [1.0, 2.0]


def test_numbers_of_python_are_of_the_input_s_type_where_it_has_them() -> None:
    """They were float64 and int64, which no float32 or int32 input takes."""
    assert identity((2,), "float32").run(None, {"x": [1, 2.5]})[0].tolist() == [1.0, 2.5]
    assert identity((), "int32").run(None, {"x": 3})[0] == 3
    assert identity((), "bfloat16").run(None, {"x": 3})[0] == 3
    for dtype, value in (("int32", 1.5), ("int8", 300), ("bool", 1), ("float32", np.float64(1)), ("float32", "1")):
        with pytest.raises(InputError, match=f"expected {dtype} \\(\\), got"):
            identity((), dtype).run(None, {"x": value})


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch")
    session = identity((4, 2), "float32")
    x = torch.arange(8.0).reshape(2, 4).T
    for value in (x, x.contiguous(), x.requires_grad_(), torch.arange(9.0)[1:].reshape(4, 2)):
        np.testing.assert_array_equal(session.run(None, {"x": value})[0], value.detach().numpy())
    half = torch.arange(8).reshape(4, 2).to(torch.bfloat16)
    assert identity((4, 2), "bfloat16").run(None, {"x": half})[0].astype("int").tolist() == half.int().tolist()
    (result,) = session.run(None, {"x": x})
    back = torch.from_dlpack(result)
    assert back.shape == (4, 2)
    assert back.data_ptr() == result.ctypes.data
    with pytest.raises(InputError, match="'x': expected float32"):
        session.run(None, {"x": x.long()})


def test_torch_tensors_that_stand_for_others_are_taken_for_these() -> None:
    """One that stands for its negative was taken for what it negates; one without memory raised a bare ValueError."""
    torch = pytest.importorskip("torch")
    session, x = identity((4,), "float32"), torch.arange(4.0)
    assert session.run(None, {"x": torch._neg_view(x)})[0].tolist() == [0, -1, -2, -3]
    with pytest.raises(InputError, match="input 'x'"):
        session.run(None, {"x": x.to("meta")})
    with pytest.raises(InputError, match=r"expected float32 \(4,\), got what DLPack can't give: [^\n]+$"):
        session.run(None, {"x": torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 1, 0)})


class OnDevice:
    """What a library with a device gives."""

    device = "cuda:0"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("not asked for")


def test_a_tensor_on_a_device_is_named_once() -> None:
    """It said that DLPack can't give it, too."""
    with pytest.raises(InputError) as error:
        identity((4,), "float32").run(None, {"x": OnDevice()})
    assert str(error.value) == "input 'x': expected a tensor on the CPU, got one on cuda:0"


def test_empty_torch_tensors_are_taken_whatever_their_strides() -> None:
    torch = pytest.importorskip("torch")
    session = eqsat_layout.Session(Affine)
    given = {"x": torch.empty_strided((0, 4), (1, 1)), "w": torch.ones(4, 3), "b": torch.empty_strided((0, 3), (1, 1))}
    assert [result.shape for result in session.run(None, given)] == [(0, 3), (0, 4)]


def test_what_a_mask_hides_is_no_number() -> None:
    """The hidden numbers went in as if they were given."""
    session = identity((3,), "float32")
    x = np.ma.masked_array(np.arange(3, dtype="float32"), mask=[False, True, False])
    with pytest.raises(InputError, match="masked out"):
        session.run(None, {"x": x})
    (result,) = session.run(None, {"x": np.ma.masked_array(x.data)})
    assert result.tolist() == [0.0, 1.0, 2.0]
