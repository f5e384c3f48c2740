"""Which ops the cost model takes to be one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from programs import program
from tvm import relax

from eqsat_layout.cost.fusion import Fusion, fusion_of
from eqsat_layout.graph.importer import import_module

op = relax.op
Emit = Callable[[Any], Any]


def fused(body: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Fusion, list[str]]:
    """The fusion of a program by the numbers of its ops, and their names."""
    imported = import_module(program(body, *shapes))
    (graph,) = imported.graphs
    names = [imported.signatures[node.signature].name if node.kind == "op" else "" for node in graph.nodes]
    return fusion_of(graph, imported.signatures, range(len(graph.nodes))), names


def edges(body: Callable[..., Any], *shapes: tuple[int, ...]) -> set[tuple[str, str]]:
    found, names = fused(body, *shapes)
    return {(names[source].rpartition(".")[2], names[user].rpartition(".")[2]) for source, user in found.edges}


def test_elementwise_ops_are_one_kernel_through_a_view() -> None:
    """The affine part of a group norm was taken to read from memory what its normalisation had written there, because
    a reshape is between them: modelled at 219 us, 51 measured."""

    def body(builder: Any, x: Any) -> Any:
        groups = builder.emit(op.exp(x))
        return builder.emit(op.nn.relu(builder.emit(op.reshape(groups, (1, 32, 64)))))

    assert edges(body, (1, 8, 256)) == {("exp", "reshape"), ("reshape", "relu")}


def test_views_of_views_too() -> None:
    def body(builder: Any, x: Any) -> Any:
        seen = builder.emit(op.reshape(builder.emit(op.exp(x)), (1, 32, 64)))
        return builder.emit(op.nn.relu(builder.emit(op.permute_dims(seen, [0, 2, 1]))))

    assert edges(body, (1, 8, 256)) == {("exp", "reshape"), ("reshape", "permute_dims"), ("permute_dims", "relu")}


def test_a_view_of_what_is_in_memory_is_read_there() -> None:
    """Somebody has to read it."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.nn.relu(builder.emit(op.reshape(x, (1, 32, 64)))))

    assert not edges(body, (1, 8, 256))


def test_a_view_that_two_ops_read_is_in_memory() -> None:
    def body(builder: Any, x: Any) -> Any:
        seen = builder.emit(op.reshape(builder.emit(op.exp(x)), (32, 64)))
        return builder.emit(op.matmul(seen, builder.emit(op.permute_dims(builder.emit(op.nn.relu(seen)), [1, 0]))))

    assert ("exp", "reshape") not in edges(body, (8, 256))


def test_no_view_follows_a_contraction() -> None:
    """TVM's FuseOps fuses an epilogue, but nothing that moves elements."""

    def body(builder: Any, x: Any, w: Any) -> Any:
        rows = builder.emit(op.nn.relu(builder.emit(op.matmul(x, w))))
        return builder.emit(op.exp(builder.emit(op.reshape(rows, (2, 8, 64)))))

    assert edges(body, (16, 32), (32, 64)) == {("matmul", "relu")}


def test_no_view_is_read_by_an_epilogue() -> None:
    """A bias that is looked up and viewed was taken to be part of attention's kernel: it went in other layouts then."""

    def body(builder: Any, x: Any, w: Any, bias: Any) -> Any:
        seen = builder.emit(op.permute_dims(builder.emit(op.exp(bias)), [1, 0]))
        return builder.emit(
            op.nn.relu(builder.emit(op.add(builder.emit(op.matmul(x, w)), builder.emit(op.tanh(seen)))))
        )

    assert edges(body, (16, 32), (32, 64), (64, 16)) == {("matmul", "add"), ("tanh", "add"), ("add", "relu")}
