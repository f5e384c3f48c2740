"""Nodes of torch that no compiled program has: they draw random numbers, hold complex ones, or do more than compute.

In: a node. Out: nothing, or :class:`TorchNodeError`. Which nodes these are is what torch itself says of them.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from eqsat_layout.readers.torch.nodes import TorchNodeError

_TRAINS: Final = ("train", "training")
_CHANCES: Final = ("p", "dropout", "dropout_p")


def check_is_real(node: Any) -> None:
    """:class:`TorchNodeError` for one whose results hold complex numbers."""
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    if any(getattr(getattr(one, "dtype", None), "is_complex", False) for one in values):
        raise TorchNodeError(f"node {node.name} ({node.target}): complex numbers are not done", None)


def check_is_pure(node: Any) -> None:
    """:class:`TorchNodeError` for one that torch keeps in order with others, as it stops the program or prints."""
    if getattr(node.target, "__name__", "") == "with_effects":
        raise TorchNodeError(f"node {node.name} ({node.args[1]}): does more than to compute, which is not done", None)


def check_is_not_random(node: Any) -> None:
    """:class:`TorchNodeError` unless each call of this node gives the same."""
    tags = importlib.import_module("torch").Tag
    if tags.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return
    known = {argument.name: argument.default_value for argument in node.target._schema.arguments}
    names = list(known)
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    trains = [given.get(name, known[name]) for name in _TRAINS if name in names]
    chances = [given.get(name, 0.0) for name in _CHANCES if name in names]
    if (trains and not any(trains)) or (chances and "generator" not in names and not any(chances)):
        return
    hint = ": call the model's .eval() before" if trains or any("dropout" in name for name in names) else ""
    raise TorchNodeError(f"node {node.name} ({node.target}): draws random numbers, which is not done{hint}", None)
