"""Faults of many kinds, one planted at a time in the optimiser: the program fuzzer finds each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import op as R

from eqsat_layout.graph.constants import ConstantPool
from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.passes.quantised import byte_products, product_match
from eqsat_layout.planning.pipeline import optimize
from eqsat_layout.soundness.programs import trial
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.generator import RandomProgram
from eqsat_layout.soundness.programs.ops_quantised import quantised
from eqsat_layout.soundness.programs.outcomes import FAILED
from eqsat_layout.soundness.programs.trial import THREADS_EVERY, check_program, program_of
from eqsat_layout.soundness.programs.tried import EXACTLY
from eqsat_layout.targets.registry import target as target_of
from eqsat_layout.targets.schedules import independent_results

MOST = 3000
"""Seeds that are looked through for a program that has what the fault is about."""
TRIED = 40
"""Programs that are tried."""

Rewrite = Callable[[Any], Any]


def found(
    optimizer: Any, has: Callable[[RandomProgram, int], bool], why: str, begin: int = 0, target: Any = None
) -> int:
    """The first seed, from ``begin`` on, for which the fault is found as what it is; some is seldom in a program."""
    tried = 0
    for seed in range(begin, begin + MOST):
        if not has(program_of(Choices.of_seed(seed), seed, target), seed):
            continue
        outcome = check_program(Choices.of_seed(seed), seed, optimizer=optimizer, target=target)
        if outcome.kind == FAILED and why in outcome.why:
            return seed
        tried += 1
        assert tried < TRIED, "not found"
    raise AssertionError("no program has what the fault is about")


@relax.expr_functor.mutator
class Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Every call as ``rewrite`` has it."""

    def __init__(self, mod: tvm.IRModule, rewrite: Rewrite) -> None:
        super().__init__(mod)
        self._rewrite = rewrite

    def visit_call_(self, call: Any) -> Any:
        return self.builder_.normalize(self._rewrite(super().visit_call_(call)))


def spoiled(rewrite: Rewrite) -> Any:
    """An optimiser that rewrites what comes in."""

    def optimizer(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
        rewriter = Rewriter(mod, rewrite)
        changed = mod.clone()
        for var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                changed.update_func(var, rewriter.visit_expr(function))
        return optimize(changed, **options)

    return optimizer


def is_call(value: Any, name: str) -> bool:
    return isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op) and value.op.name == name


def calls(made: RandomProgram) -> list[Any]:
    functions = [f for f in made.module.functions.values() if isinstance(f, relax.Function)]
    return [b.value for f in functions for block in f.body.blocks for b in block.bindings if hasattr(b, "value")]


# ---- the faults ------------------------------------------------------------------------------------------------------


def test_constants_of_two_regions_are_taken_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before commit d294b93."""
    monkeypatch.setattr(ConstantPool, "_identity", lambda _, constant: constant.key)
    monkeypatch.setattr(trial, "mostly", lambda *_: None)  # few layers twice are in quantised networks

    def has(made: RandomProgram, _: int) -> bool:
        attrs = made.module["main"].attrs
        return "layer_twice" in made.kinds and len(attrs.get(FROZEN_ATTRIBUTE, {})) > 1

    found(optimize, has, "normal numbers", begin=1900)


def test_an_attribute_is_forgotten() -> None:
    """Softmax is always along the default axis, the last one; some program in thirty has another."""

    def is_other(call: Any) -> bool:
        return is_call(call, "relax.nn.softmax") and call.attrs.axis not in (-1, call.ty.ndim - 1)

    def rewrite(call: Any) -> Any:
        return R.nn.softmax(call.args[0]) if is_other(call) else call

    found(spoiled(rewrite), lambda made, _: any(map(is_other, calls(made))), "numbers", begin=460)


def test_a_symbolic_extent_that_is_a_product_ends_in_an_error() -> None:
    def optimizer(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
        for binding in (b for block in mod["main"].body.blocks for b in block.bindings):
            shape = getattr(binding.var.ty, "shape", None)
            assert not isinstance(shape, relax.ShapeExpr) or not isinstance((shape.values or [0])[0], tirx.Mul)
        return optimize(mod, **options)

    found(optimizer, lambda made, _: "symbolic_view" in made.kinds, "AssertionError")


def test_a_part_of_a_nested_tuple_is_another_one() -> None:
    def optimizer(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
        changed = mod.clone()
        changed.update_func(mod.get_global_var("main"), Swapper(mod).visit_expr(mod["main"]))
        return optimize(changed, **options)

    found(optimizer, lambda made, _: "packed" in made.kinds, "numbers", begin=680)


@relax.expr_functor.mutator
class Swapper(relax.PyExprMutator):  # type: ignore[misc]
    """The other field of pairs inside of tuples, where it has the same type."""

    def visit_tuple_getitem_(self, item: Any) -> Any:
        item = super().visit_tuple_getitem_(item)
        value = self.lookup_binding(item.tuple_value)
        fields = item.tuple_value.ty.fields
        is_inner = isinstance(value, relax.TupleGetItem) and len(fields) == 2
        same = is_inner and tvm_ffi.structural_equal(fields[0], fields[1])
        return relax.TupleGetItem(item.tuple_value, 1 - item.index) if same else item


def test_a_function_that_is_called_twice_is_called_on_the_same() -> None:
    """The second call of a function has the operands of the first one."""

    def optimizer(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
        first: dict[Any, Any] = {}

        def rewrite(call: Any) -> Any:
            if not isinstance(call.op, tvm.ir.GlobalVar):
                return call
            return relax.Call(call.op, first.setdefault(call.op, call.args))

        return spoiled(rewrite)(mod, **options)

    def has(made: RandomProgram, _: int) -> bool:
        inner = [b.value for block in made.module["main"].body.blocks for b in block.bindings if hasattr(b, "value")]
        called = [c for c in inner if isinstance(c, tvm.ir.Call) and isinstance(c.op, tvm.ir.GlobalVar)]
        return any(a.op == b.op and not a.args[0].same_as(b.args[0]) for a in called for b in called)

    found(optimizer, has, "numbers", begin=3180)


def test_what_is_known_of_an_operand_of_many_results_is_taken_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before commit 28e5314d: no step made a kernel of so many results."""
    monkeypatch.setattr(independent_results, "with_literals_of", lambda part, *_: part)
    found(
        optimize,
        lambda made, _: "products" in made.kinds,
        "compile raised EqsatError in build.py",
        begin=370,
        target="llvm",
    )


def test_threads_disturb_one_another() -> None:
    lock = threading.Lock()

    def optimizer(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
        assert lock.acquire(blocking=False), "nested"
        try:
            return optimize(mod, **options)
        finally:
            lock.release()

    seed = found(optimizer, lambda made, seed: seed % THREADS_EVERY == 1, "AssertionError")
    assert seed % THREADS_EVERY == 1


def test_nan_is_made_where_there_was_none() -> None:
    """relu(x) as x * (x > 0): infinity and zero give NaN."""

    def rewrite(call: Any) -> Any:
        if not is_call(call, "relax.nn.relu"):
            return call
        x, dtype = call.args[0], str(call.ty.dtype)
        return R.multiply(x, R.astype(R.greater(x, relax.const(0, dtype)), dtype))

    found(spoiled(rewrite), lambda made, _: _is_exact(made), "special numbers")


def _is_exact(made: RandomProgram) -> bool:
    is_approx = made.options["approx"] and made.options["candidates"]
    return not is_approx and any(is_call(c, "relax.nn.relu") for c in calls(made))


def test_a_difference_below_every_tolerance_is_found_where_nothing_rounds() -> None:
    def rewrite(call: Any) -> Any:
        if is_call(call, "relax.negative") and str(call.ty.dtype) == "float32":
            return R.multiply(call, relax.const(1 + 2**-20, "float32"))
        return call

    found(
        spoiled(rewrite), lambda made, _: any(is_call(c, "relax.negative") for c in calls(made)), "whole numbers", 400
    )


@pytest.mark.skipif(not target_of("llvm").has_byte_products, reason="this CPU multiplies no bytes")
def test_a_zero_that_is_known_at_run_time_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 programs five showed it; some in twenty do since every fourth is a quantised network."""
    products: list[bool] = []

    def product_of(call: Any, reader: Any) -> Any:
        found = product_match.byte_product_of(call, reader)
        if found is None or found.data.has_known_zero:
            return found
        products.append(True)
        return replace(found, sums=found.sums * 0)

    monkeypatch.setattr(byte_products, "byte_product_of", product_of)
    seed = 55
    outcome = check_program(Choices.of_seed(seed), seed, target=EXACTLY)
    assert trial.mostly(seed, EXACTLY) is quantised
    assert products
    assert (outcome.kind, outcome.why) == (FAILED, "special numbers")
