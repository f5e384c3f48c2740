"""Plans for OpenCL devices, statement by statement: where tensors lie, what is copied, what the module says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from programs import constant, ops, program
from targets.device_cases import one_primfunc_twice
from tvm import ir, relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

import eqsat_layout
from eqsat_layout.maps import GLOBAL
from eqsat_layout.models import resnet50
from eqsat_layout.planning.pipeline import choose
from eqsat_layout.targets.opencl.images import NHWC, TEXTURE, WEIGHT
from eqsat_layout.targets.opencl.policies import ALL_IMAGES
from eqsat_layout.targets.opencl.target import OpenClTarget
from eqsat_layout.targets.registry import target as target_of

nn = op.nn

ADRENO = {"kind": "opencl", "device": "adreno"}
IMAGES = {TEXTURE, NHWC, WEIGHT}
SIZE = (1, 32, 28, 28)


def conv(builder: Any, x: Any, seed: int = 0, channels: int = 32, size: int = 3) -> Any:
    weight = constant(channels, int(x.ty.shape.values[1]), size, size, seed=seed)
    return builder.emit(nn.conv2d(x, weight, padding=size // 2), f"conv{seed}")


def planned(mod: Any, target: Any = ADRENO, **options: Any) -> Any:
    """The plan, proven and written down: well formed, the public types as they were."""
    plan = eqsat_layout.plan(mod, target, **options)
    assert plan.is_optimal
    module = plan.module
    relax.analysis.well_formed(module)
    before, after = mod["main"], module["main"]
    assert str(before.ret_ty) == str(after.ret_ty)
    assert [str(p.ty) for p in before.params] == [str(p.ty) for p in after.params]
    assert "R.VDevice" not in str(after.ret_ty)
    check_scopes(module)
    return plan


def check_scopes(module: Any) -> None:
    """Each call gives its kernel what the kernel is written for; virtual devices are those of the module."""
    infos = [str(d.memory_scope) for d in module.global_infos.get("vdevice", [])]
    for call in calls(module):
        func = module[call.args[0]]
        (out,) = call.ty_args
        types = [a.ty for a in call.args[1].fields] + (list(out.fields) if isinstance(out, relax.TupleType) else [out])
        buffers = [p.ty for p in func.params if type(p.ty) is tirx.BufferType]
        assert [str(b.storage_scope) or GLOBAL for b in buffers] == list(map(scope, types))
        assert all(scope(ty) == GLOBAL or scope(ty) in infos for ty in types)


def calls(module: Any) -> list[Any]:
    values = [b.value for block in module["main"].body.blocks for b in block.bindings]
    return [v for v in values if isinstance(v, relax.Call) and v.op == ir.Op.get("relax.call_tir")]


def scope(ty: Any) -> str:
    return GLOBAL if ty.vdevice is None else str(ty.vdevice.memory_scope)


def scopes(plan: Any) -> Counter[str]:
    """Of every tensor that is bound."""
    bound = [b.var.ty for block in plan.module["main"].body.blocks for b in block.bindings]
    return Counter(scope(ty) for ty in bound if isinstance(ty, relax.TensorType))


def weight_scopes(plan: Any) -> Counter[str]:
    fields = [a for call in calls(plan.module) for a in call.args[1].fields]
    return Counter(scope(a.ty) for a in fields if isinstance(a, ir.GenericConst))


def copies(plan: Any) -> int:
    return sum("rewrite" in name or name in ("permute_dims", "layout_transform") for name in ops(plan.module))


@T.prim_func(private=True, s_tir=True)
def opaque(x: T.Buffer((1, 32, 28, 28), "float32"), y: T.Buffer((1, 32, 28, 28), "float32")) -> None:
    T.evaluate(T.call_extern("int32", "unknown", x.data, y.data))


def chain(builder: Any, x: Any) -> Any:
    y = builder.emit(nn.relu(conv(builder, x)))
    y = builder.emit(nn.relu(conv(builder, y, 1)))
    return builder.emit(nn.relu(conv(builder, y, 2)))


def test_activations_and_weights_become_images_where_images_are_cached() -> None:
    plan = planned(program(chain, SIZE))
    assert scopes(plan)[TEXTURE] + scopes(plan)[NHWC] >= 2
    assert weight_scopes(plan)[WEIGHT] == 3
    assert plan.cost < plan.input_cost


def test_all_stays_in_buffers_where_there_are_no_images() -> None:
    plan = planned(program(chain, SIZE), {"kind": "opencl", "profile": "buffer_only"})
    assert set(scopes(plan)) == {GLOBAL}


def test_buffers_are_as_good_where_they_are_cached_too() -> None:
    """So on Mali no copy is made for the sake of images."""
    plan = planned(program(chain, SIZE), {"kind": "opencl", "profile": "mali"})
    buffers = planned(program(chain, SIZE), {"kind": "opencl", "profile": "buffer_only"})
    assert plan.cost <= buffers.cost * (1 + 1e-9)


def test_images_that_are_simulated_are_not_used() -> None:
    assert set(scopes(planned(program(chain, SIZE), {"kind": "opencl", "profile": "pocl"}))) == {GLOBAL}


def test_parameters_and_results_are_global() -> None:
    """:func:`planned` asserts it; here one that would like to be an image at both ends."""
    plan = planned(program(lambda builder, x: conv(builder, x), SIZE))
    assert scope(plan.module["main"].params[0].ty) == GLOBAL


def test_three_readers_share_one_copy() -> None:
    def body(builder: Any, x: Any) -> Any:
        a, b, c = (conv(builder, x, seed) for seed in range(3))
        return builder.emit(op.add(builder.emit(op.add(a, b)), c))

    plan = planned(program(body, SIZE))
    assert sum("rewrite" in name for name in ops(plan.module)) == 1
    assert IMAGES & set(scopes(plan))


def test_a_copy_is_folded_into_the_op_before() -> None:
    """What the relu writes is read as an image: the relu writes the image, and nothing is copied."""

    def body(builder: Any, x: Any) -> Any:
        return conv(builder, builder.emit(nn.relu(conv(builder, x))), 1)

    plan = planned(program(body, SIZE))
    assert sum("rewrite" in name for name in ops(plan.module)) == 1  # that of the parameter
    relu = next(c for c in calls(plan.module) if "relu" in str(c.args[0].name_hint))
    assert scope(relu.args[1].fields[0].ty) == GLOBAL
    assert scope(relu.ty_args[0]) in IMAGES


def test_arguments_of_one_kernel_lie_in_different_memories() -> None:
    plan = planned(program(chain, SIZE))
    mixed = [{scope(a.ty) for a in c.args[1].fields} for c in calls(plan.module)]
    assert any(WEIGHT in own and len(own) > 1 for own in mixed)


def test_the_scope_of_a_result_does_not_hang_on_the_operands() -> None:
    plan = planned(program(chain, SIZE))
    pairs = {(scope(c.args[1].fields[0].ty), scope(c.ty_args[0])) for c in calls(plan.module)}
    assert any(a in IMAGES and b == GLOBAL for a, b in pairs)
    assert any(a == GLOBAL and b in IMAGES for a, b in pairs)


def test_one_primfunc_under_two_scopes_becomes_two() -> None:
    """The same relu writes an image for a convolution, and the result in a buffer."""
    plan = planned(program(one_primfunc_twice(28), SIZE))
    names = {str(c.args[0].name_hint): c for c in calls(plan.module) if "scaled" in str(c.args[0].name_hint)}
    assert len(names) == 2
    found = {scope(c.ty_args[0]) for c in names.values()}
    assert GLOBAL in found
    assert found & IMAGES


def test_concat_reads_and_writes_images() -> None:
    """Where all that can be an image has to be one; by their costs some of them may be buffers."""

    def body(builder: Any, x: Any, y: Any) -> Any:
        a, b = (builder.emit(nn.relu(conv(builder, v, i))) for i, v in enumerate((x, y)))
        return conv(builder, builder.emit(op.concat([a, b], axis=1)), 2)

    own = target_of(ADRENO)
    assert isinstance(own, OpenClTarget)
    plan = planned(program(body, SIZE, SIZE), cost_model=ALL_IMAGES.costs(own))
    (concat,) = [c for c in calls(plan.module) if "concat" in str(c.args[0].name_hint)]
    assert scope(concat.ty_args[0]) in IMAGES
    assert all(scope(a.ty) in IMAGES for a in concat.args[1].fields)


def test_readers_in_two_memories_share_a_copy_for_each() -> None:
    """Two convolutions read an image, a kernel that is not understood a buffer, twice, and the input is a buffer."""

    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(opaque, "opaque")
        ty = relax.TensorType(SIZE, "float32")
        left = [builder.emit(relax.call_tir(func, [x], ty)) for _ in range(2)]
        right = [conv(builder, x, seed) for seed in range(2)]
        sums = [builder.emit(op.add(a, b)) for a, b in zip(left, right, strict=True)]
        return builder.emit(op.multiply(*sums))

    plan = planned(program(body, SIZE), approx=False)
    given = plan.module["main"].params[0]
    readers = [str(c.args[0].name_hint) for c in calls(plan.module) if any(given.same_as(a) for a in c.args[1].fields)]
    assert sorted(readers) == ["layout_rewrite", "opaque"]  # what is called twice on the same is done once


def test_concat_across_texels_is_refused() -> None:
    """30 channels and 34: the second part starts in the middle of a texel."""

    def body(builder: Any, x: Any, y: Any) -> Any:
        return conv(builder, builder.emit(op.concat([x, y], axis=1)), 2)

    plan = planned(program(body, (1, 30, 28, 28), (1, 34, 28, 28)))
    for call in calls(plan.module):
        if "concat" in str(call.args[0].name_hint):
            assert all(scope(a.ty) == GLOBAL for a in call.args[1].fields[1:])


def test_parts_of_a_split_are_planned_on_their_own() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x, channels=64)))
        parts = builder.emit(op.split(y, 2, axis=1))
        first, second = (builder.emit(relax.TupleGetItem(parts, i)) for i in range(2))
        return builder.emit(op.add(conv(builder, first, 1), second))

    plan = planned(program(body, SIZE))
    assert IMAGES & set(scopes(plan))


def test_tuples_of_results_are_global() -> None:
    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(nn.relu(conv(builder, x)))
        return y, conv(builder, y, 1)

    plan = planned(program(body, SIZE))
    assert all(scope(ty) == GLOBAL for ty in plan.module["main"].ret_ty.fields)


def test_inline_constants_are_read_from_where_it_is_cheapest() -> None:
    """They need no copy: only the input and the result are rewritten."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.add(conv(builder, x), constant(1, 32, 1, 1)))
        return conv(builder, builder.emit(op.multiply(y, relax.const(np.float32(2)))), 1)

    plan = planned(program(body, SIZE), approx=False)
    assert copies(plan) == 2
    assert weight_scopes(plan)[WEIGHT] == 2


@pytest.mark.parametrize("axis", ["n", "h"])
def test_dynamic_sizes_pass_through_global(axis: str) -> None:
    size = tirx.Var(axis, "int64")
    shape = (size, 32, 28, 28) if axis == "n" else (1, 32, size, size)
    mod = program(chain, shape)
    plan = eqsat_layout.plan(mod, ADRENO)
    relax.analysis.well_formed(plan.module)
    assert set(scopes(plan)) == {GLOBAL}


@pytest.mark.parametrize(
    "emit",
    [
        lambda x: nn.softmax(x),
        lambda x: nn.layer_norm(x, constant(64), constant(64, seed=1), axes=[-1]),
        lambda x: op.sum(x, axis=[-1], keepdims=True),
    ],
    ids=["softmax", "layer_norm", "sum"],
)
def test_what_gains_nothing_stays_in_buffers(emit: Any) -> None:
    mod = program(lambda builder, x: builder.emit(nn.relu(builder.emit(emit(x)))), (1, 48, 64))
    plan = planned(mod)
    assert set(scopes(plan)) == {GLOBAL}
    assert copies(plan) == 0


def test_an_opaque_kernel_reads_and_writes_buffers() -> None:
    def body(builder: Any, x: Any) -> Any:
        func = builder.add_func(opaque, "opaque")
        y = builder.emit(relax.call_tir(func, [conv(builder, x)], relax.TensorType(SIZE, "float32")))
        return conv(builder, y, 1)

    plan = planned(program(body, SIZE))
    (call,) = [c for c in calls(plan.module) if "opaque" in str(c.args[0].name_hint)]
    assert scope(call.args[1].fields[0].ty) == GLOBAL
    assert scope(call.ty_args[0]) == GLOBAL
    assert IMAGES & set(scopes(plan))


def test_a_gather_of_channels_does_not_read_texels() -> None:
    def body(builder: Any, x: Any) -> Any:
        picked = builder.emit(op.take(builder.emit(nn.relu(x)), relax.const(np.arange(32)[::-1].copy()), axis=1))
        return conv(builder, picked)

    plan = planned(program(body, SIZE))
    for call in calls(plan.module):
        if "take" in str(call.args[0].name_hint):
            assert scope(call.args[1].fields[0].ty) == GLOBAL


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_images_of_every_rank(rank: int) -> None:
    """Products of matrices, and convolutions of images and volumes, have candidates in images."""

    def body(builder: Any, x: Any) -> Any:
        if rank == 3:
            return builder.emit(op.matmul(builder.emit(op.matmul(x, constant(256, 256))), constant(256, 256, seed=1)))
        if rank == 4:
            return chain(builder, x)
        weight = constant(32, 32, 3, 3, 3)
        y = builder.emit(nn.conv3d(x, weight, padding=1))
        return builder.emit(nn.conv3d(builder.emit(nn.relu(y)), weight, padding=1))

    shape = {3: (2, 128, 256), 4: SIZE, 5: (1, 32, 8, 14, 14)}[rank]
    plan = planned(program(body, shape))
    assert IMAGES & {*scopes(plan), *weight_scopes(plan)}


def test_extents_beyond_the_limits_are_not_images() -> None:
    small = {**ADRENO, "texture_spatial_limit": 16, "texture_depth_limit": 16}
    plan = planned(program(chain, SIZE), small)
    assert set(scopes(plan)) == {GLOBAL}
    assert weight_scopes(plan)[WEIGHT] == 0


def test_the_plan_says_which_limit_keeps_a_tensor_out_of_images() -> None:
    plan = planned(program(chain, SIZE), {**ADRENO, "texture_spatial_limit": SIZE[3] - 1})
    refused = {r.side: r.reason for r in plan.why_not("conv2d") if "global.texture:" in r.reason}
    assert f"height is {SIZE[2]}, but it is {SIZE[3] - 1} at most" in refused["operand 0"]
    assert {"operand 0", "result 0"} <= {*refused}
    assert not [r for r in planned(program(chain, SIZE)).why_not("conv2d") if "at most" in r.reason]


def test_a_plan_read_again_is_understood_and_stays() -> None:
    first = planned(program(chain, SIZE))
    again = eqsat_layout.plan(first.module, ADRENO, candidates=False)
    assert again.input_cost == pytest.approx(first.cost, rel=0.05)  # what is fused differs a little
    assert again.cost == pytest.approx(again.input_cost)
    assert Counter(map(str, ops(again.module))) == Counter(map(str, ops(first.module)))


def test_half_precision_is_planned_like_single() -> None:
    def body(builder: Any, x: Any) -> Any:
        for seed in range(2):
            weight = constant(32, 32, 3, 3, seed=seed, dtype="float16")
            x = builder.emit(nn.relu(builder.emit(nn.conv2d(x, weight, padding=1))))
        return x

    plan = planned(program(body, SIZE, dtype="float16"))
    assert IMAGES & set(scopes(plan))


def test_a_residual_network_is_proven_and_needs_no_copy_but_that_of_its_input() -> None:
    plan = planned(resnet50(image=64, width=32, blocks=(2, 1, 1, 1)))
    assert copies(plan) <= 1
    assert IMAGES & set(scopes(plan))
    assert weight_scopes(plan)[WEIGHT] > 10


def test_the_results_of_a_split_are_chosen_one_by_one() -> None:
    """LeViT's queries, keys and values, each in its own format: the plan takes seconds, not minutes."""
    moved = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])

    def build(b: Any, x: Any) -> Any:
        joint = b.emit(op.reshape(op.matmul(x, constant(64, 128)), (1, 196, 4, 32)))
        parts = b.emit(op.split(joint, [8, 16], axis=3))
        q, k, v = (b.emit(op.permute_dims(b.emit(parts[i]), axes)) for i, axes in enumerate(moved))
        scores = b.emit(nn.softmax(op.matmul(q, k), axis=-1))
        mixed = b.emit(op.reshape(op.permute_dims(op.matmul(scores, v), [0, 2, 1, 3]), (1, 196, 64)))
        return op.matmul(nn.silu(mixed), constant(64, 64))

    (region,) = choose(program(build, (1, 196, 64)), target_of(ADRENO), {}).regions
    assert region.solution.proven
    parts = [
        labels
        for own in region.selection.labels
        for labels in own
        if labels and all(kind == "part" for kind, _ in labels)
    ]
    assert len(parts) > 20
    assert all(len(labels) == 1 for labels in parts), "whatever the other results lie in"
