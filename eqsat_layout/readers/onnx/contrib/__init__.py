"""Contrib ops of ONNX Runtime (domain ``com.microsoft``), as its optimisers, quantisers and model builders write.

In: a node's inputs and attributes. Out: its results, in Relax; :class:`EqsatError` for what is not done. What they
compute is said in ONNX Runtime's ``ContribOperators.md``. Ops of that domain that are ONNX's own by another version, or
that TVM's frontend converts, are not here.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.onnx.contrib import attention, norms, packed_attention, products, scaled_integers
from eqsat_layout.readers.onnx.contrib.operands import EmittedOps

_DOMAIN: Final = "com.microsoft"

_WITHOUT_DOMAIN: Final = ("SimplifiedLayerNormalization",)
"""That ONNX Runtime has in ONNX's own domain, where ONNX knows none of that name."""


def _in_order_of_appearance(_: EmittedOps, __: Any, ___: dict[str, Any]) -> Any:
    """``Unique``, whose results are others than those of ONNX's op of that name."""
    raise EqsatError("elements in the order in which they come first are not done: use ONNX's own Unique with sorted=0")


_MAKERS: Final = (
    norms.MAKERS
    | products.MAKERS
    | attention.MAKERS
    | packed_attention.MAKERS
    | scaled_integers.MAKERS
    | {"Unique": _in_order_of_appearance}
)


def name_of(node: Any) -> str:
    """The op of a node: those made here by domain and name, since ONNX has others of the same name."""
    is_own = node.op_type in _MAKERS and (node.domain == _DOMAIN or node.op_type in _WITHOUT_DOMAIN)
    return f"{_DOMAIN}.{node.op_type}" if is_own else str(node.op_type)


def takes(kind: str) -> bool:
    """Whether nodes of this op, as :func:`name_of` calls it, are made here."""
    return kind.startswith(f"{_DOMAIN}.")


def converted(builder: relax.BlockBuilder, kind: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """The results of a node."""
    own = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
    return _MAKERS[kind.removeprefix(f"{_DOMAIN}.")](EmittedOps(builder), [*inputs, *[None] * 12], own)
