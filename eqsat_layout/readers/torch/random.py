"""Ops of torch that draw random numbers, which no compiled program does.

In: a node. Out: nothing, or :class:`TorchNodeError`. Which ops draw is what torch itself says of them.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from eqsat_layout.readers.torch.nodes import TorchNodeError

_TRAINS: Final = ("train", "training")
_CHANCES: Final = ("p", "dropout", "dropout_p")


def check_is_not_random(node: Any) -> None:
    """:class:`TorchNodeError` unless each call of this node gives the same."""
    tags = importlib.import_module("torch").Tag
    if tags.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return
    names = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    trains = [given[name] for name in _TRAINS if name in given]
    chances = [given.get(name, 0.0) for name in _CHANCES if name in names]
    if (trains and not any(trains)) or (chances and "generator" not in names and not any(chances)):
        return
    hint = ": call the model's .eval() before" if trains or any("dropout" in name for name in names) else ""
    raise TorchNodeError(f"node {node.name} ({node.target}): draws random numbers, which is not done{hint}", None)
