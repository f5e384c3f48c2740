"""Attention of networks as one launch: what frontends emit, joined by what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from compare import machine
from programs import program
from targets.cuda.simulating import CUDA, check, compiled, launches
from tvm import relax
from tvm.relax import op

from eqsat_layout.graph.importer import import_module
from eqsat_layout.soundness.cuda.driver import simulated
from eqsat_layout.targets.registry import target
from eqsat_layout.validation.inputs import arrays_in

HEADS, SIZE = 2, 16


def linear(builder: Any, x: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    width = HEADS * SIZE
    weight, bias = (rng.standard_normal(shape).astype("float32") * 0.3 for shape in ((width, width), (width,)))
    product = builder.emit(op.matmul(x, relax.const(weight)))
    return builder.emit(op.add(product, relax.const(bias)))


def heads(builder: Any, x: Any) -> Any:
    batch, rows, _ = (int(extent) for extent in x.ty.shape)
    apart = builder.emit(op.reshape(x, (batch, rows, HEADS, SIZE)))
    return builder.emit(op.permute_dims(apart, [0, 2, 1, 3]))


def encoder(builder: Any, x: Any, *mask: Any) -> Any:
    """As BERT has it: heads apart and together by reshapes and transposes, maybe a mask over the keys."""
    q, k, v = (heads(builder, linear(builder, x, seed)) for seed in range(3))
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = builder.emit(op.divide(scores, relax.const(np.float32(SIZE**0.5))))
    for one in mask:
        scores = builder.emit(op.add(scores, one))
    values = builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), v))
    together = builder.emit(op.reshape(builder.emit(op.permute_dims(values, [0, 2, 1, 3])), x.ty.shape))
    return linear(builder, together, 4)


def scaled_before(builder: Any, q: Any, k: Any, v: Any) -> Any:
    """As ViT and llama have it: the queries are scaled, and the softmax is of float32."""
    q = builder.emit(op.multiply(q, relax.const(np.float32(0.25))))
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    return builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), v))


def capped(builder: Any, q: Any, k: Any, v: Any) -> Any:
    """Scores that can't be large, as Gemma has them: what follows the first product is costly."""
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = builder.emit(op.multiply(builder.emit(op.tanh(scores)), relax.const(np.float32(3.0))))
    return builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), v))


def chosen(builder: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Scores that a mask leaves out."""
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    is_seen = builder.emit(op.greater(mask, relax.const(np.float32(0))))
    scores = builder.emit(op.where(is_seen, scores, relax.const(np.float32(-1e9))))
    return builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), v))


def safe(builder: Any, q: Any, k: Any, v: Any, *mask: Any) -> Any:
    """As torch exports scaled_dot_product_attention: rows of no key give zero."""
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    for one in mask:
        is_seen = builder.emit(op.greater(one, relax.const(np.float32(0))))
        scores = builder.emit(op.where(is_seen, scores, relax.const(np.float32(-np.inf))))
    is_none = builder.emit(op.equal(scores, relax.const(np.float32(-np.inf))))
    some = builder.emit(op.astype(builder.emit(op.logical_not(is_none)), "int8"))
    some = builder.emit(op.astype(builder.emit(op.max(some, [3], keepdims=True)), "bool"))
    powers = builder.emit(op.nn.softmax(scores))
    zeros = builder.emit(op.full_like(powers, relax.const(np.float32(0))))
    return builder.emit(op.matmul(builder.emit(op.where(builder.emit(op.logical_not(some)), zeros, powers)), v))


def read_elsewhere(builder: Any, q: Any, k: Any, v: Any) -> Any:
    powers = builder.emit(op.nn.softmax(builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))))
    sums = builder.emit(op.sum(powers, [3], keepdims=True))
    return builder.emit(op.add(builder.emit(op.matmul(powers, v)), sums))


def of_relax(causal: str | None = None) -> Callable[..., Any]:
    return lambda builder, q, k, v: builder.emit(op.nn.attention(q, k, v, causal_mask=causal))


def test_rows_of_no_key_give_zero() -> None:
    """They are the reason of a softmax that is safe."""
    mod = program(safe, *QKV, (24, 24))
    made = compiled(mod)
    assert len(launches(made)) == 1
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in (*QKV, (24, 24))]
    arrays[3][5:9] = -1
    (result,) = arrays_in([simulated(made, 2)(*arrays)])
    assert (result[:, :, 5:9] == 0).all()
    (expected,) = arrays_in([machine(mod)["main"](*map(tvm.runtime.tensor, arrays))])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_flag_of_something_else_is_not_taken_for_one_of_rows_without_keys() -> None:
    def body(builder: Any, q: Any, k: Any, v: Any) -> Any:
        scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
        some = builder.emit(op.astype(builder.emit(op.greater(scores, relax.const(np.float32(0)))), "int8"))
        some = builder.emit(op.astype(builder.emit(op.max(some, [3], keepdims=True)), "bool"))
        powers = builder.emit(op.nn.softmax(scores))
        return builder.emit(op.matmul(builder.emit(op.where(some, powers, op.zeros_like(powers))), v))

    assert len(launches(check(program(body, *QKV)))) > 1


def count_of(mod: Any, **options: Any) -> int:
    return len(launches(compiled(mod, **options)))


X = (2, 24, HEADS * SIZE)
QKV = [(2, HEADS, 24, SIZE)] * 3
BY_ROWS = [(2, 24, HEADS, SIZE)] * 3

NETWORKS = {
    "an encoder": (encoder, [X], 4 + 1),
    "a mask over keys": (encoder, [X, (2, 1, 1, 24)], 4 + 1),
    "a mask over all": (encoder, [X, (1, 1, 24, 24)], 4 + 1),
    "queries that are scaled": (scaled_before, QKV, 1 + 1),
    "a mask that chooses": (chosen, [*QKV, (2, 1, 24, 24)], 1),
    "scores that are capped": (capped, QKV, 1),
    "a softmax that is safe": (safe, QKV, 1),
    "relax.nn.attention": (of_relax(), BY_ROWS, 1),
    "a causal mask of relax.nn.attention": (of_relax("TopLeft"), BY_ROWS, 1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_attention_is_one_launch(name: str) -> None:
    body, shapes, count = NETWORKS[name]
    program_ = check(program(body, *shapes))
    names = launches(program_)
    assert len(names) == count, names


def test_halves_of_a_float32_network_with_a_softmax_of_floats() -> None:
    assert count_of(program(scaled_before, *QKV), precision="float16") < count_of(
        program(scaled_before, *QKV), precision="float16", approx=False
    )


def test_what_is_exact_is_not_joined() -> None:
    assert count_of(program(capped, *QKV), approx=False) > 1


def test_scores_that_are_read_elsewhere_are_in_memory() -> None:
    assert len(launches(check(program(read_elsewhere, *QKV)))) > 1


def in_registers(body: Callable[..., Any], *shapes: tuple[int, ...], approx: bool = True) -> set[tuple[str, str]]:
    """The names of ops, and of those that read them, between which the costs see no memory."""
    imported = import_module(program(body, *shapes))
    (graph,) = imported.graphs
    names = [node.name for node in graph.nodes]
    numbers = range(len(names))
    edges = target(CUDA, approx=approx).fusion(graph, imported.signatures, numbers).edges
    return {(names[made], names[user]) for made, user in edges}  # type: ignore[call-overload]


def test_costs_know_that_scores_are_in_registers() -> None:
    before = in_registers(encoder, X, (2, 1, 1, 24), approx=False)
    added = in_registers(encoder, X, (2, 1, 1, 24)) - before
    assert len(added) == 2, "from the mask to the softmax, and from there to the product"
    assert in_registers(capped, *QKV) - in_registers(capped, *QKV, approx=False)


def test_costs_know_of_scores_that_are_read_elsewhere() -> None:
    assert in_registers(read_elsewhere, *QKV) == in_registers(read_elsewhere, *QKV, approx=False)
