"""A plan says what the build makes one kernel of, and layouts are chosen by what that saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from programs import AVX2, constant, program
from tvm import relax, te
from tvm.relax import op

import eqsat_layout
from eqsat_layout.models.resnet import resnet50
from eqsat_layout.notes import Notes
from eqsat_layout.passes.all_calls import is_tir_call
from eqsat_layout.passes.fuse import fuse
from eqsat_layout.planning import joined_layouts
from eqsat_layout.planning.plan_details import LAYOUT_TRANSFORM
from eqsat_layout.report.plan import Plan
from eqsat_layout.system.store import LIMIT_VARIABLE
from eqsat_layout.targets.cpu.target import CpuTarget
from eqsat_layout.targets.lowering import prepared

AVX512 = AVX2 | {"mcpu": "x86-64-v4", "num-cores": 1}


def convolution(b: Any, x: Any, channels: int, size: int = 1, stride: int = 1, groups: int = 1) -> Any:
    wide = int(x.ty.shape[1])
    weight = constant(channels, wide // groups, size, size, seed=channels + size)
    y = b.emit(op.nn.conv2d(x, weight, strides=stride, padding=size // 2, groups=groups))
    return b.emit(op.add(y, constant(1, channels, 1, 1)))


def inverted(b: Any, x: Any, wide: int, channels: int, stride: int = 1) -> Any:
    """A block of MobileNetV2."""
    y = b.emit(op.clip(convolution(b, x, wide), 0, 6))
    y = b.emit(op.clip(convolution(b, y, wide, 3, stride, wide), 0, 6))
    y = convolution(b, y, channels)
    return b.emit(op.add(x, y)) if stride == 1 and int(x.ty.shape[1]) == channels else y


def mobile(b: Any, x: Any) -> Any:
    for channels, stride in ((24, 1), (24, 1), (32, 2)):
        x = inverted(b, x, 144, channels, stride)
    return x


def squeezed(b: Any, x: Any) -> Any:
    """A block of EfficientNet: its channels are weighed by what is everywhere."""

    def swish(y: Any) -> Any:
        return b.emit(op.multiply(y, b.emit(op.sigmoid(y))))

    y = swish(convolution(b, swish(convolution(b, x, 96)), 96, 3, 2, 96))
    weight = b.emit(op.mean(y, axis=[2, 3], keepdims=True))
    weight = b.emit(op.sigmoid(convolution(b, swish(convolution(b, weight, 8)), 96)))
    return convolution(b, b.emit(op.multiply(y, weight)), 24)


def skipping(b: Any, x: Any) -> Any:
    """A small U-Net."""
    first = b.emit(op.nn.relu(convolution(b, x, 16, 3)))
    y = b.emit(op.nn.max_pool2d(first, pool_size=(2, 2), strides=(2, 2)))
    y = b.emit(op.nn.relu(convolution(b, y, 32, 3)))
    y = b.emit(op.nn.conv2d_transpose(y, constant(32, 16, 2, 2), strides=(2, 2)))
    y = b.emit(op.concat([y, first], axis=1))
    return convolution(b, b.emit(op.nn.relu(convolution(b, y, 16, 3))), 16)


def attending(b: Any, x: Any) -> Any:
    """A layer of a transformer."""
    h = b.emit(op.nn.layer_norm(x, constant(128), constant(128), axes=[-1]))

    def heads(seed: int) -> Any:
        y = b.emit(op.add(b.emit(op.matmul(h, constant(128, 128, seed=seed))), constant(128)))
        return b.emit(op.permute_dims(b.emit(op.reshape(y, (1, 64, 4, 32))), [0, 2, 1, 3]))

    q, k, v = map(heads, (1, 2, 3))
    scores = b.emit(op.matmul(q, b.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = b.emit(op.nn.softmax(b.emit(op.multiply(scores, relax.const(0.2, "float32")))))
    y = b.emit(op.permute_dims(b.emit(op.matmul(scores, v)), [0, 2, 1, 3]))
    x = b.emit(op.add(x, b.emit(op.matmul(b.emit(op.reshape(y, (1, 64, 128))), constant(128, 128, seed=4)))))
    y = b.emit(op.nn.gelu(b.emit(op.matmul(x, constant(128, 512, seed=5)))))
    return b.emit(op.add(x, b.emit(op.matmul(y, constant(512, 128, seed=6)))))


NETWORKS: dict[str, Callable[[], Any]] = {
    "mobilenet": lambda: program(mobile, (1, 24, 56, 56)),
    "efficientnet": lambda: program(squeezed, (1, 16, 56, 56)),
    "unet": lambda: program(skipping, (1, 8, 32, 32)),
    "transformer": lambda: program(attending, (1, 64, 128)),
    "resnet": lambda: resnet50(image=64, width=16, blocks=(2,)),
}


class Stopped(Exception):
    """Nothing is built."""


@pytest.fixture
def built_kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[str]]:
    """The names of the kernels that a compiled program calls, in order."""

    def of(mod: Any) -> list[str]:
        called: list[str] = []

        def record(_: Any, built: Any, __: Any) -> None:
            for function in relax.transform.RewriteDataflowReshape()(built).functions.values():
                for block in function.body.blocks if isinstance(function, relax.Function) else ():
                    called.extend(str(b.value.args[0].name_hint) for b in block.bindings if is_tir_call(b.value))
            raise Stopped

        monkeypatch.setenv(LIMIT_VARIABLE, "0")  # nothing is built ahead
        monkeypatch.setattr(CpuTarget, "build", record)
        with pytest.raises(Stopped):
            eqsat_layout.compile(mod, AVX2)
        return called

    return of


@pytest.mark.parametrize("network", NETWORKS)
def test_the_kernels_of_a_plan_are_those_of_the_program_and_named_after_their_ops(
    network: str, built_kernels: Any
) -> None:
    mod = NETWORKS[network]()
    plan = eqsat_layout.plan(prepared(mod, AVX2), AVX2)
    assert [kernel.name for kernel in plan.kernels] == built_kernels(mod)
    ops = [name for kernel in plan.kernels for name in kernel.ops if name != LAYOUT_TRANSFORM]
    assert Counter(ops) == Counter(choice.op for choice in plan.explain().choices)
    for kernel in plan.kernels:
        for name in kernel.ops:
            called = "layout_rewrite" if name == LAYOUT_TRANSFORM else name.replace(".", "_")
            assert called in kernel.name or called == "concat", "parts of a concat are written where they belong"
    assert sum(kernel.cost for kernel in plan.kernels) == pytest.approx(plan.cost)


def test_a_plan_says_what_joined_kernels_save() -> None:
    plan = eqsat_layout.plan(program(mobile, (1, 24, 56, 56)), AVX2)
    joined = [kernel for kernel in plan.kernels if kernel.ops.count("nn.conv2d") > 1]
    assert joined
    assert all(0 < kernel.saved < kernel.cost for kernel in joined)
    assert plan.built_cost == pytest.approx(plan.cost - sum(kernel.saved for kernel in plan.kernels))
    explanation = plan.explain()
    assert "What the build joins" in str(explanation)
    assert [kernel["name"] for kernel in explanation.to_dict()["kernels"]] == [kernel.name for kernel in plan.kernels]
    assert "cost as built" in plan.html()


def in_the_middle(b: Any, x: Any) -> Any:
    """Row-major costs least one by one: the tensors at both ends would be copied."""
    return inverted(b, convolution(b, x, 24), 144, 24)


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan of a planner that does not ask what the build joins, where rewrites cost so much that it matters."""
    monkeypatch.setattr("eqsat_layout.targets.cpu.costs._REWRITE", 0.3)
    with monkeypatch.context() as patched:
        patched.setattr(CpuTarget, "joins", lambda *_: False)
        return eqsat_layout.plan(program(in_the_middle, (1, 24, 56, 56)), AVX512)


def test_layouts_are_those_in_which_kernels_are_joined(unaware: Plan) -> None:
    """A block of MobileNetV2 alone, in row-major tensors: its convolutions were three kernels where two are faster."""
    plan = eqsat_layout.plan(program(in_the_middle, (1, 24, 56, 56)), AVX512)
    assert max(kernel.ops.count("nn.conv2d") for kernel in unaware.kernels) == 1
    assert max(kernel.ops.count("nn.conv2d") for kernel in plan.kernels) == 2
    assert plan.cost > unaware.cost
    assert plan.built_cost < 0.95 * unaware.built_cost
    assert plan.lower_bound == pytest.approx(unaware.lower_bound)
    assert any("ops become one kernel" in note for note in plan.notes)
    assert plan.module is not None


def test_a_contraction_of_several_results_may_follow_another_one() -> None:
    """Found by the program fuzzer: its formats are a list by name, and one was looked for (ValueError)."""

    def products(x: te.Tensor, matrix: te.Tensor) -> list[te.Tensor]:
        r = te.reduce_axis((0, 6), "r")
        return [te.compute(x.shape, lambda i, *at: te.sum(matrix[i, r] * x(r, *at), axis=r), name=n) for n in "ab"]

    def body(b: Any, x: Any) -> Any:
        both = b.emit_te(products, b.emit(op.matmul(x, constant(3, 3))), constant(6, 6))
        return op.add(*(b.emit(relax.TupleGetItem(both, number)) for number in range(2)))

    assert eqsat_layout.plan(program(body, (6, 6, 3, 3)), AVX512).cost > 0


def test_a_problem_in_which_joining_saves_nothing_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning for GPUs, where nothing of the kind is joined, took twice as long."""
    monkeypatch.setattr(CpuTarget, "joins", lambda *_: False)
    monkeypatch.setattr(joined_layouts, "solved", lambda *_: pytest.fail("it was"))
    assert eqsat_layout.plan(program(in_the_middle, (1, 24, 28, 28)), AVX512).lower_bound > 0


def test_layouts_that_join_nothing_in_the_end_are_not_chosen(unaware: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuTarget, "kernels", lambda _, mod, __: fuse(mod, Notes()))
    plan = eqsat_layout.plan(program(in_the_middle, (1, 24, 56, 56)), AVX512)
    assert plan.cost == unaware.cost
    assert not any("ops become one kernel" in note for note in plan.notes)
    assert "join" in plan.stats.seconds, "the target was asked"


def test_numbers_are_those_of_the_input_in_layouts_for_joining(run: Any, arrays: Any) -> None:
    mod = program(in_the_middle, (1, 24, 56, 56))
    (x,) = arrays((1, 24, 56, 56))
    expected = run(eqsat_layout.compile(mod, candidates=False, approx=False), x)
    got = run(eqsat_layout.compile(mod), x)
    assert abs(got - expected).max() < 1e-3 * abs(expected).max()
