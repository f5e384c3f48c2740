"""Parameters and results that a program says lie in images: virtual devices on the types of its public functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import tvm
from compare import assert_close, inputs_for, machine
from programs import program
from targets.device_cases import chain, conv, nn, split
from targets.opencl.running import ADRENO, compiled, launches, results
from targets.opencl.test_plans import check_scopes
from tvm import ir, relax, tirx
from tvm.relax import op

import eqsat_layout
from eqsat_layout.errors import TargetError
from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.opencl.host.executable import OpenClProgram
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE, WEIGHT
from eqsat_layout.targets.registry import target as target_of

TEXELS: Final = (1, 8, 14, 14, 4)
"""32 channels of 14 x 14, by fours."""

LARGE: Final = (1, 1, 16385, 4)


def in_memories(body: Callable[..., Any], given: Sequence[str], made: Sequence[str], is_said: bool = True) -> Any:
    """``main`` of tensors in NCHW4c in the memories ``given``, with results in NCHW4c in the memories ``made``.

    ``is_said``: types name ordinary memory, too, where they can do without.
    """
    builder = relax.BlockBuilder()
    devices = {scope: relax.VDevice(dict(ADRENO), 0, scope) for scope in dict.fromkeys((GLOBAL, *given, *made))}
    if is_said or devices.keys() != {GLOBAL}:
        builder.get().update_global_info("vdevice", list(devices.values()))

    def typed(scope: str) -> Any:
        return relax.TensorType(TEXELS, "float32", devices[scope] if is_said or scope != GLOBAL else None)

    params = [relax.Var(f"x{i}", typed(scope)) for i, scope in enumerate(given)]
    with builder.function("main", params):
        with builder.dataflow():
            plain = [
                x if s == GLOBAL else builder.emit(op.to_vdevice(x, devices[GLOBAL]))
                for x, s in zip(params, given, strict=True)
            ]
            nchw = [builder.emit(op.layout_transform(x, lambda n, o, h, w, i: (n, o * 4 + i, h, w))) for x in plain]
            found = body(builder, *nchw)
            outputs = []
            for y, scope in zip(found if isinstance(found, tuple) else (found,), made, strict=True):
                y = builder.emit(op.layout_transform(y, lambda n, c, h, w: (n, c // 4, h, w, c % 4)))
                outputs.append(builder.emit_output(y if scope == GLOBAL else op.to_vdevice(y, devices[scope])))
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def in_buffers(body: Callable[..., Any], given: int, made: int) -> Any:
    """The same with no word on memories."""
    return in_memories(body, [GLOBAL] * given, [GLOBAL] * made, is_said=False)


def check(body: Callable[..., Any], given: Sequence[str], made: Sequence[str], is_said: bool = True) -> OpenClProgram:
    """Planned with the public types as they were, compiled, and run: the same numbers as without images."""
    mod, plain = in_memories(body, given, made, is_said), in_buffers(body, len(given), len(made))
    plan = eqsat_layout.plan(mod, ADRENO)
    assert plan.is_optimal
    before, after = mod["main"], plan.module["main"]
    assert [str(p.ty) for p in before.params] == [str(p.ty) for p in after.params]
    assert str(before.ret_ty) == str(after.ret_ty)
    relax.analysis.well_formed(plan.module)
    check_scopes(plan.module)
    found = compiled(mod)
    (function,), values = found.plan.functions, found.plan.values
    assert [values[i].scope for i in function.inputs] == list(given)
    ends = function.results if isinstance(function.results, list) else [function.results]
    assert [values[i].scope for i in ends] == list(made)
    inputs = inputs_for(plain["main"], 1)
    got = results(found, [one.numpy() for one in inputs])
    expected = machine(plain)["main"](*inputs)
    for a, b in zip([expected] if len(made) == 1 else expected, got, strict=True):
        assert_close(a.numpy(), b)
    return found


@pytest.mark.parametrize("is_said", [True, False])
@pytest.mark.parametrize(("given", "made"), [(TEXTURE, GLOBAL), (GLOBAL, TEXTURE), (TEXTURE, TEXTURE), (NHWC, WEIGHT)])
def test_a_parameter_and_a_result_lie_where_their_types_say(given: str, made: str, is_said: bool) -> None:
    check(chain, [given], [made], is_said)


def test_an_image_that_kernels_read_and_write_is_not_copied() -> None:
    assert len(launches(check(chain, [TEXTURE], [TEXTURE]))) == 3


def test_several_of_each() -> None:
    def body(builder: Any, x: Any, y: Any) -> Any:
        both = builder.emit(op.add(conv(builder, x), y))
        return both, builder.emit(nn.relu(conv(builder, both, 1))), split(builder, both)

    check(body, [TEXTURE, GLOBAL], [WEIGHT, GLOBAL, TEXTURE])


def test_a_parameter_in_an_image_is_a_result() -> None:
    assert len(launches(check(lambda b, x: x, [TEXTURE], [TEXTURE]))) <= 1


def test_an_image_is_given_to_a_program_that_was_saved(tmp_path: Path) -> None:
    found = check(chain, [TEXTURE], [TEXTURE])
    found.save(tmp_path / "net.program")
    mod = in_buffers(chain, 1, 1)
    inputs = [one.numpy() for one in inputs_for(mod["main"], 1)]
    (one,), (other,) = results(found, inputs), results(OpenClProgram.load(tmp_path / "net.program"), inputs)
    assert_close(one, other)


def test_tvms_runtime_is_given_images() -> None:
    made = eqsat_layout.compile(in_memories(chain, [TEXTURE], [GLOBAL]), {**ADRENO, "host": "llvm"})
    (function,) = made.program.plan.functions
    assert made.program.plan.values[function.inputs[0]].scope == TEXTURE


def test_tvms_runtime_makes_no_results_in_images() -> None:
    """It ended the process: the storage that TVM makes for such a result is too small, and on a device of its own."""
    with pytest.raises(TargetError, match=r"main: TVM.s virtual machine makes no results in global\.texture"):
        eqsat_layout.compile(in_memories(chain, [GLOBAL], [TEXTURE]), {**ADRENO, "host": "llvm"})


def test_a_kernel_that_writes_an_image_is_built_to_be_timed() -> None:
    """By itself, not by TVM's virtual machine."""
    own = target_of({**ADRENO, "host": "llvm"})
    plan = eqsat_layout.plan(in_memories(lambda b, x: b.emit(nn.relu(x)), [TEXTURE], [TEXTURE]), ADRENO)
    alone = own.alone(lower(plan.module, own))
    assert alone is not None
    assert [one.scope for one in alone.tensors] == [TEXTURE, TEXTURE]


@pytest.mark.parametrize("is_result", [False, True])
@pytest.mark.parametrize(
    ("scope", "shape", "dtype", "target", "why"),
    [
        (TEXTURE, (1, 8, 14, 14), "float32", ADRENO, "innermost axis must have 4 elements, and that .* has 14"),
        (TEXTURE, (8, 14, 14, 4), "int32", ADRENO, "holds no elements of int32"),
        (WEIGHT, (8, 4), "float32", ADRENO, "2 physical axes, but an image has 3 at least"),
        (TEXTURE, LARGE, "float32", ADRENO, "an image whose width is 16385, but it is 16384 at most"),
        (TEXTURE, ("n", 14, 14, 4), "float32", ADRENO, "whose layers is n, which is known at run time only"),
        (TEXTURE, (1, 14, 14, 4), "float32", {**ADRENO, "profile": "adreno5xx"}, "reads arrays of one layer as zeros"),
        (TEXTURE, (8, 14, 14, 4), "float32", {"kind": "opencl"}, "the target's memories are global$"),
        ("global.mirror", (8, 14, 14, 4), "float32", ADRENO, "the target's memories are global, global.texture, "),
        (TEXTURE, (8, 14, 14, 4), "float32", "llvm", "the target's memories are global$"),
    ],
)
def test_what_no_image_holds_is_refused_with_a_reason(
    scope: str, shape: Any, dtype: str, target: Any, why: str, is_result: bool
) -> None:
    builder = relax.BlockBuilder()
    image, ordinary = (relax.VDevice(dict(ADRENO), 0, one) for one in (scope, GLOBAL))
    builder.get().update_global_info("vdevice", [image, ordinary])
    extents = [tirx.Var(e, "int64") if isinstance(e, str) else e for e in shape]
    x = relax.Var("x", relax.TensorType(extents, dtype, ordinary if is_result else image))
    with builder.function("main", [x]):
        with builder.dataflow():
            there = builder.emit(op.add(op.to_vdevice(x, ordinary), relax.const(1, dtype)))
            y = builder.emit_output(op.to_vdevice(there, image) if is_result else there)
        builder.emit_func_output(y)
    mod = builder.get()
    plan = eqsat_layout.plan(mod, target)
    assert any("stay as they are" in note for note in plan.notes)
    said = rf"main: \w+ is a tensor of {dtype} \[.*\] in {scope}, which does not hold it: .*{why}"
    with pytest.raises(TargetError, match=said):
        eqsat_layout.compile(mod, target)


def test_what_no_image_holds_is_refused_where_a_device_that_nothing_lies_on_is_declared() -> None:
    """Such a program was taken for one of several devices: an error said that no kernel does `to_vdevice`."""
    builder = relax.BlockBuilder()
    image, ordinary = (relax.VDevice(dict(ADRENO), 0, one) for one in (TEXTURE, GLOBAL))
    builder.get().update_global_info("vdevice", [image, ordinary, relax.VDevice("llvm", 0, GLOBAL)])
    x = relax.Var("x", relax.TensorType((8, 14, 14, 4), "int32", image))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.to_vdevice(x, ordinary))
        builder.emit_func_output(y)
    with pytest.raises(TargetError, match=r"main: x is a tensor of int32 .*holds no elements of int32"):
        eqsat_layout.compile(builder.get(), ADRENO)


def test_a_constant_that_no_image_holds_is_refused_with_a_reason() -> None:
    """Only variables were looked at."""
    builder = relax.BlockBuilder()
    image, ordinary = (relax.VDevice(dict(ADRENO), 0, one) for one in (TEXTURE, GLOBAL))
    builder.get().update_global_info("vdevice", [image, ordinary])
    x = relax.Var("x", relax.TensorType((8, 14, 14, 4), "int32", ordinary))
    ones = tvm.runtime.tensor(np.ones((8, 14, 14, 4), "int32"))
    constant = ir.GenericConst(ones, relax.TensorType(ones.shape, "int32", image))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.add(x, op.to_vdevice(constant, ordinary)))
        builder.emit_func_output(y)
    with pytest.raises(TargetError, match=r"main: a constant is a tensor of int32 .*holds no elements of int32"):
        eqsat_layout.compile(builder.get(), ADRENO)


def moved_only(body: Callable[..., Any], given: str, made: str) -> Any:
    """``main`` of one tensor, with no layout transforms: nothing is cheaper in a plan than as it was written."""
    builder = relax.BlockBuilder()
    devices = {scope: relax.VDevice(dict(ADRENO), 0, scope) for scope in dict.fromkeys((GLOBAL, given, made))}
    builder.get().update_global_info("vdevice", list(devices.values()))
    x = relax.Var("x", relax.TensorType(TEXELS, "float32", devices[given]))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.to_vdevice(builder.emit(body(x)), devices[made]))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize(("given", "made"), [(GLOBAL, TEXTURE), (TEXTURE, GLOBAL)])
@pytest.mark.parametrize("body", [op.nn.relu, lambda x: op.add(x, x)])
def test_a_move_is_made_where_nothing_else_is_gained(body: Callable[..., Any], given: str, made: str) -> None:
    """`compile` refused it: no kernel does `to_vdevice`."""
    found = compiled(moved_only(body, given, made))
    plain = program(lambda _, x: body(x), TEXELS)
    (x,) = inputs_for(plain["main"], 1)
    assert_close(machine(plain)["main"](x).numpy(), results(found, [x.numpy()])[0])
