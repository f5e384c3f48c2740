"""Sizes for symbolic shapes: what they make of a program, and how what does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.errors import EqsatError, InputError
from eqsat_layout.sources.shapes import with_shapes
from eqsat_layout.sources.source import source_of


@I.ir_module
class Net:
    @R.function
    def main(image: R.Tensor(("n", 3, "h", "h"), "float32"), mask: R.Tensor(("2 * n", 4), "float32")) -> R.Tuple(
        R.Tensor(("n", "3 * h * h"), "float32"), R.Tensor(("2 * n", 4), "float32")
    ):
        n = T.int64()
        h = T.int64()
        with R.dataflow():
            a = R.nn.relu(image)
            b = R.reshape(a, R.shape([n, 3 * h * h]))
            R.output(b)
        return (b, mask)


def bound(shapes: dict[str, Any]) -> str:
    return str(with_shapes(source_of(Net), shapes).module.script())


def test_symbols_become_numbers_everywhere() -> None:
    text = bound({"image": (2, 3, 8, 8)})
    assert "R.shape([2, 192])" in text
    assert "mask: R.Tensor((4, 4)" in text
    assert "TypeVar" not in text


def test_none_leaves_an_axis_as_it_is() -> None:
    text = bound({"image": (None, 3, 8, 8)})
    assert "image: R.Tensor((n, 3, 8, 8)" in text
    assert "R.shape([n, 192])" in text


def test_what_says_nothing_new_changes_nothing() -> None:
    source = source_of(Net)
    assert with_shapes(source, {"image": (None, 3, None, None)}) is source


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"imag": (1,)}, "shapes: there is no input 'imag'; did you mean 'image'?"),
        ({"q": (1,)}, "shapes: there is no input 'q'; there are 'image', 'mask'"),
        ({"image": (1, 2)}, "shapes: input 'image' has 4 axes, R.Tensor((n, 3, h, h), dtype=\"float32\"), got (1, 2)"),
        ({"image": (2, 4, 8, 8)}, "shapes: axis 1 of 'image' is 3, got 4"),
        ({"image": (2, 3, 8, 9)}, "shapes: h is 8 by axis 2 of 'image' and 9 by axis 3 of 'image'"),
        ({"image": (2, 3, 8, 8), "mask": (5, 4)}, "shapes: axis 0 of 'mask' is 2 * n = 4, got 5"),
        ({"mask": (4, 4)}, "shapes: axis 0 of 'mask' is 2 * n: give what it is made of by other inputs"),
        ({"image": "abc"}, "shapes: of 'image' must be a list of sizes, got 'abc'"),
        ({"image": (1, 3, 2.0, 2)}, "shapes: of 'image' must be a list of sizes, got (1, 3, 2.0, 2)"),
        ({"image": np.zeros((1, 3))}, "shapes: of 'image' must be a list of sizes, got ndarray of shape (1, 3)"),
        ({"image": (1, 3, -1, 2)}, "shapes: of 'image' must be a list of sizes"),
        ({"image": (range(1, 10**20), 3, 8, 8)}, "shapes: of 'image' must be a list of sizes"),  # looked at one by one
        ({"image": (10**5000, 3, 8, 8)}, "shapes: of 'image' must be a list of sizes"),
        ((1, 3), "shapes must be a dictionary from names of inputs to shapes"),
    ],
)
def test_what_does_not_fit_names_the_input(shapes: Any, says: str) -> None:
    with pytest.raises(InputError) as error:
        eqsat_layout.plan(Net, shapes=shapes)
    assert str(error.value).startswith(says)


def test_a_program_is_made_for_several_sizes_and_for_all_others(tmp_path: Path) -> None:
    shapes: Any = {"image": ((1, 3), 3, 8, 8)}
    session = eqsat_layout.Session(Net, shapes=shapes)
    assert session.inputs[0].shape == ("n", 3, 8, 8)
    session.save(tmp_path / "net.so")
    for opened in (session, eqsat_layout.Session(tmp_path / "net.so")):
        for n in (3, 1, 2, 1):
            image = np.random.default_rng(n).standard_normal((n, 3, 8, 8)).astype("float32")
            mask = np.full((2 * n, 4), n, "float32")
            flat, same = opened.run(None, {"image": image, "mask": mask})
            np.testing.assert_array_equal(flat, np.maximum(image, 0).reshape(n, -1))
            np.testing.assert_array_equal(same, mask)


def test_the_private_functions_know_their_sizes() -> None:
    text = bound({"image": ((2, 5), 3, 8, 8)})
    assert "R.shape([2, 192])" in text
    assert "R.shape([5, 192])" in text
    assert "R.shape([n, 192])" in text
    assert bound({"image": ((2, 2), 3, 8, 8)}).count("def main") == 3


@pytest.mark.parametrize(
    ("sizes", "made"),
    [(range(1, 33), [1, 2, 4, 8, 16, 32]), (range(3, 6), [3, 4, 5]), (range(5, 6), [5]), (range(2, 9, 3), [2, 5, 8])],
)
def test_a_range_of_sizes_is_its_ends_and_powers_of_two(sizes: range, made: list[int]) -> None:
    text = bound({"image": (sizes, 3, 8, 8)})
    assert [size for size in range(40) if f"R.shape([{size}, 192])" in text] == made
    assert "R.shape([n, 192])" in text


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"image": ((), 3, 8, 8)}, "shapes: of 'image' must be a list of sizes"),
        ({"image": (range(8, 2), 3, 8, 8)}, "shapes: of 'image' must be a list of sizes"),
        ({"image": (1, (3, 4), 8, 8)}, "shapes: axis 1 of 'image' is 3: several sizes are for symbols"),
        ({"mask": ((2, 4), 4)}, "shapes: axis 0 of 'mask' is 2 * n: several sizes are for symbols"),
        ({"image": (1, 3, (8, 9), (8, 7))}, "shapes: h is one of (8, 9) by axis 2 of 'image', of (8, 7) by axis 3"),
        ({"image": (tuple(range(17)), 3, 8, 8)}, "shapes: 17 combinations of sizes, and at most 16 programs"),
    ],
)
def test_several_sizes_that_do_not_fit_name_the_input(shapes: Any, says: str) -> None:
    with pytest.raises(InputError) as error:
        eqsat_layout.plan(Net, shapes=shapes)
    assert str(error.value).startswith(says)


def test_a_plan_says_what_sizes_its_costs_assume() -> None:
    def said(**options: Any) -> list[str]:
        return [note for note in eqsat_layout.plan(Net, **options).notes if note.startswith("costs take symbolic")]

    (usual,) = said()
    assert "n for 64" in usual
    (asked,) = said(assume={"n": 8})
    assert "n for 8" in asked
    assert not said(shapes={"image": (1, 3, 8, 8)})


def test_costs_follow_the_sizes_that_are_assumed() -> None:
    costs = [eqsat_layout.plan(Net, assume={"n": size, "h": 8}).cost for size in (1, 64, 1024)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize(
    ("assume", "says"),
    [
        ({"m": 8}, "assume: there is no symbol 'm'; there are h, n"),
        ({"n": 0}, "assume must be a dictionary from names of symbols to sizes, got {'n': 0}"),
        ([8], "assume must be a dictionary from names of symbols to sizes, got [8]"),
    ],
)
def test_sizes_that_can_not_be_assumed_are_refused(assume: Any, says: str) -> None:
    with pytest.raises(EqsatError) as error:
        eqsat_layout.plan(Net, assume=assume)
    assert str(error.value) == says


@pytest.mark.parametrize("sizes", [(None, (4, 7)), ((1, 8), None)])
def test_a_size_may_stay_open_beside_several(sizes: tuple[object, object]) -> None:
    """What is open in a program for one size was defined twice: TVM's ``ValueError``."""
    rows, columns = tirx.Var("a", "int64"), tirx.Var("b", "int64")
    x = relax.Var("x", relax.TensorType([rows, columns], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.sum(relax.op.nn.relu(x), axis=1))
        builder.emit_func_output(result)
    session = eqsat_layout.Session(builder.get(), shapes={"x": sizes})
    for shape in ((3, 4), (1, 7), (8, 2), (2, 9)):
        given = np.random.default_rng(0).standard_normal(shape).astype("float32")
        np.testing.assert_allclose(session.run(None, {"x": given})[0], np.maximum(given, 0).sum(1), rtol=1e-5)
