from __future__ import annotations

from tvm import relax, tirx

from eqsat_layout.passes.sizes_first import sizes_first


def test_a_size_is_said_before_what_is_as_large() -> None:
    builder, size = relax.BlockBuilder(), tirx.Var("k", "int64")
    data = relax.Var("x", relax.TensorType([8], "float32"))
    count = relax.Var("n", relax.TensorType([1], "int64"))
    with builder.function("main", [data, count]):
        with builder.dataflow():
            part = builder.emit(relax.op.strided_slice(data, [0], [0], [size], assume_inbound=True))
            builder.match_cast(builder.emit(relax.op.tensor_to_shape(count)), relax.ShapeType([size]))
            result = builder.emit_output(relax.op.add(part, relax.const(1.0)))
        builder.emit_func_output(result)
    moved = [type(one).__name__ for one in sizes_first(builder.get())["main"].body.blocks[0].bindings]
    assert moved == ["VarBinding", "MatchCast", "VarBinding", "VarBinding"]


def test_a_size_that_is_known_from_the_start_is_said_by_nobody_else() -> None:
    """What is cast came behind its cast."""
    builder, size = relax.BlockBuilder(), tirx.Var("n", "int64")
    data = relax.Var("x", relax.TensorType([size], "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            part = builder.emit(relax.op.strided_slice(data, [0], [0], [size - 1]))
            cast = builder.match_cast(part, relax.TensorType([size - 1], "float32"))
            result = builder.emit_output(relax.op.add(cast, relax.const(1.0)))
        builder.emit_func_output(result)
    moved = [type(one).__name__ for one in sizes_first(builder.get())["main"].body.blocks[0].bindings]
    assert moved == ["VarBinding", "MatchCast", "VarBinding"]
