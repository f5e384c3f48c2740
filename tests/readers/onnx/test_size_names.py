"""Names of sizes are names, whatever they look like."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from tvm import tirx

from eqsat_layout.readers.onnx.models import from_proto
from eqsat_layout.readers.onnx.size_names import with_plain_size_names


def _model(*names: str) -> object:
    inputs = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [name]) for n, name in enumerate(names)]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph([helper.make_node("Relu", ["x0"], ["y"])], "g", inputs, [result]))


def _names(*names: str) -> list[str]:
    model = with_plain_size_names(_model(*names))
    return [value.type.tensor_type.shape.dim[0].dim_param for value in model.graph.input]


@pytest.mark.parametrize("name", ["n" + "+n" * 20_000, "floor(n/2)", "2*n", "-n", "n//0", "9**9**9"])
def test_a_name_that_looks_like_a_formula_is_a_name(name: str) -> None:
    """The first ended the process; of the others TVM said that "Var n is not defined", or "Divide by zero"."""
    module = from_proto(_model(name)).module
    assert len(module["main"].params) == 1


@pytest.mark.parametrize("name", ["9**9**9", "2*3", "7", "1_0", "0", "1 0", "٣"])
def test_a_name_that_looks_like_a_number_is_a_name(name: str) -> None:
    """An axis of any size was one of 999, 6, 7, or 10."""
    (size,) = from_proto(_model(name)).module["main"].params[0].ty.shape.values
    assert isinstance(size, tirx.Var)


def test_names_that_differ_in_blanks_are_two_sizes() -> None:
    module = from_proto(_model("n m", "nm")).module
    assert len({str(param.ty.shape.values[0]) for param in module["main"].params}) == 2


def test_formulas_over_sizes_that_are_there_are_kept() -> None:
    assert _names("n", "2*n", "n // 2", "n-1") == ["n", "2*n", "n // 2", "n-1"]
    assert _names("n", "m", "n+2*m", "n//0") == ["n", "m", "n_2_m", "n_0"]  # TVM reads (n + 2) * m
    assert _names("2*n", "2_n", "2*n") == ["2_n_1", "2_n", "2_n_1"]
