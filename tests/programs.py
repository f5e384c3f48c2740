"""Small Relax programs for the tests, and how they are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from compare import assert_same_fast
from effort import IS_LONG
from tvm import relax

from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.validation.validate import check_equal

Shape = Sequence[Any]

AVX2 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3", "num-cores": 2}
"""To plan for, where what is best depends on the machine: small extents fill its vectors, not those of AVX-512."""


def program(
    body: Callable[..., Any], *shapes: Shape, frozen: dict[str, list[str]] | None = None, dtype: str = "float32"
) -> Any:
    """A module whose ``main(x0, x1, ...)`` is one dataflow block: ``body(builder, x0, x1, ...)`` gives its result."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(list(shape), dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = body(builder, *params)
            outputs = [builder.emit_output(r) for r in result] if isinstance(result, tuple) else None
            output = relax.Tuple(outputs) if outputs is not None else builder.emit_output(result)
        builder.emit_func_output(output)
    mod = builder.finalize()
    if frozen is not None:
        mod.update_func(mod.get_global_var("main"), mod["main"].with_attr(FROZEN_ATTRIBUTE, frozen))
    return mod


def constant(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    """A random constant."""
    return relax.const(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def ops(mod: Any, function: str = "main") -> list[str]:
    """Names of the ops that ``function`` calls in its dataflow blocks, in order; ``call_tir`` by its PrimFunc."""
    names = []
    for block in mod[function].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
                is_tir = value.op.name == "relax.call_tir"
                names.append(str(value.args[0].name_hint) if is_tir else value.op.name.removeprefix("relax."))
    return names


def transforms(mod: Any, function: str = "main") -> int:
    """Layout rewrites that ``function`` runs."""
    return sum(name in ("permute_dims", "layout_transform") for name in ops(mod, function))


def assert_same(before: Any, after: Any) -> None:
    """``after`` is well formed, has the functions of ``before``, and computes the same numbers."""
    relax.analysis.well_formed(after)
    for global_var, function in before.functions_items():
        if isinstance(function, relax.Function):
            other = after[str(global_var.name_hint)]
            assert [str(p.name) for p in function.params] == [str(p.name) for p in other.params]
            assert tvm_ffi.structural_equal([p.ty for p in function.params], [p.ty for p in other.params])
            assert tvm_ffi.structural_equal(function.ret_ty, other.ret_ty)
    check_equal(before, after)


def assert_same_plan(before: Any, after: Any) -> None:
    """As :func:`assert_same` where the layouts are asked about and not the kernels: these are built without schedules
    and without optimisation, but in ``make test-long``."""
    (assert_same if IS_LONG else assert_same_fast)(before, after)


def assert_untouched(before: Any, after: Any) -> None:
    """The optimiser gave back what it was given."""
    assert tvm_ffi.structural_equal(before, after)
