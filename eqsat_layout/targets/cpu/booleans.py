"""Booleans as bytes, where TVM's LLVM code generator mistakes their type.

In: PrimFuncs. Out: the same. The generator compiles comparisons of booleans as comparisons of floats, and treats a
vector of booleans in a local buffer as bytes.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import ir, tirx

from eqsat_layout.tir.structural import body_pass, is_one_of, mapped_body, nodes_of, primfunc_pass

_COMPARISONS: Final = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_BYTE: Final = "uint8"


def join_booleans() -> Any:
    """A pass, while bodies are short: sums of truth values are true where one is, products where both are, as in NumPy.
    The code generator takes them for floats."""

    def joined(node: Any) -> Any:
        if str(node.ty.dtype).partition("x")[0] != "bool":
            return node
        return (tirx.Or if isinstance(node, tirx.Add) else tirx.And)(node.a, node.b)

    return body_pass("JoinBooleans", ((tirx.Add, tirx.Mul), joined))


def compare_booleans() -> Any:
    """A pass."""

    def compared(node: Any) -> Any:
        kind, _, lanes = str(node.a.ty.dtype).partition("x")
        if kind != "bool":
            return node
        byte = f"{_BYTE}x{lanes}" if lanes else _BYTE
        return type(node)(node.a.astype(byte), node.b.astype(byte))

    return body_pass("CompareBooleans", (_COMPARISONS, compared))


def store_booleans_as_bytes() -> Any:
    """A pass, before loops become vectors: for buffers of the function's own."""
    return primfunc_pass("StoreBooleansAsBytes", _with_bytes)


def _with_bytes(func: Any) -> Any:
    made = [node.buffer for node in nodes_of(func.body, tirx.AllocBuffer) if str(node.buffer.dtype) == "bool"]
    if not made:
        return func
    aliased = [node.buffer.data for node in nodes_of(func.body, tirx.DeclBuffer)]
    own = [buffer for buffer in made if not is_one_of(buffer.data, aliased)]
    bytes_of = {buffer: tirx.decl_buffer(buffer.shape, _BYTE, buffer.name, scope=buffer.scope()) for buffer in own}

    def on_allocation(node: Any) -> Any:
        found = bytes_of.get(node.buffer)
        return node if found is None else tirx.AllocBuffer(found, node.annotations)

    def on_store(store: Any) -> Any:
        found = bytes_of.get(store.buffer)
        return store if found is None else tirx.BufferStore(found, store.value.astype(_BYTE), store.indices)

    def on_load(load: Any) -> Any:
        found = bytes_of.get(load.source)
        return load if found is None else tirx.BufferLoad(found, load.indices) != tirx.const(0, _BYTE)

    rules = (tirx.AllocBuffer, on_allocation), (tirx.BufferStore, on_store), (ir.TensorLoad, on_load)
    return mapped_body(func, *rules)
