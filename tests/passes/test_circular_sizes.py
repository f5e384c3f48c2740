"""Sizes that are said to be made of themselves."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import relax, tirx

import eqsat_layout
from eqsat_layout.errors import MalformedModuleError


def program(extent: Any, size: Any) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([size], "float32"))
    with builder.function("main", [x]):
        zeros = builder.emit(relax.op.zeros(relax.ShapeExpr([extent]), "float32"))
        cast = builder.match_cast(zeros, relax.TensorType([size], "float32"))
        builder.emit_func_output(builder.emit(relax.op.add(cast, x)))
    return builder.finalize()


def test_a_size_made_of_itself_is_refused_where_tvm_ended_the_process() -> None:
    n = tirx.Var("n", "int64")
    with pytest.raises(MalformedModuleError, match=r"main: .* is a match_cast that says that the size n is .*max"):
        eqsat_layout.compile(program(tirx.max(tirx.min(1, n) + n - 1, 0), n))


def test_a_size_that_is_cast_to_itself_is_none() -> None:
    n = tirx.Var("n", "int64")
    eqsat_layout.plan(program(n, n))
