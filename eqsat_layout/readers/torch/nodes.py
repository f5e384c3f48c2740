"""Nodes of an exported program whose converters are watched.

In: a node. Out: one that notes which arguments are looked at. What a converter ignores it gets wrong, unless the
argument is what the op does anyway.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from eqsat_layout.errors import EqsatError

_WITHOUT_EFFECT: Final = frozenset(
    [
        "device",
        "layout",
        "pin_memory",
        "memory_format",
        "non_blocking",
        "generator",
        "check_names",
        "copy",
        "momentum",
        "cudnn_enabled",
        "padding_idx",
        "scale_grad_by_freq",
        "sparse",
        "stable",
        "train",
        "training",
        "sparse_grad",
        "N",
        "C",
        "HxW",
    ]
)
"""Arguments that change no element of what an inference gives, or say again how large the input is."""


class TorchNodeError(EqsatError):
    """A node that can't be taken as it is; ``op``: what torch itself may write in other ops."""

    def __init__(self, text: str, op: Any) -> None:
        super().__init__(text)
        self.op = op


class _Args(tuple[Any, ...]):
    """Arguments by position; ``seen``: those that were looked at."""

    seen: set[Any]

    def __getitem__(self, at: Any) -> Any:
        self.seen.update(range(len(self))[at] if isinstance(at, slice) else [range(len(self))[at]])
        return super().__getitem__(at)

    def __iter__(self) -> Any:
        self.seen.update(range(len(self)))
        return super().__iter__()


class _Keywords(dict[str, Any]):
    seen: set[Any]

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def items(self) -> Any:
        self.seen.update(self)
        return super().items()


def args_seen(values: Any, args: Any) -> Any:
    """``values``, what the ``args`` of a watched node are in Relax, watched in their place."""
    return _args(values, args.seen) if isinstance(args, _Args) else values


def watched(node: Any) -> Any:
    """A stand-in for ``node`` whose arguments are watched."""
    seen: set[Any] = set()
    keywords = _Keywords(node.kwargs)
    keywords.seen = seen
    args = _args(node.args, seen)
    return SimpleNamespace(
        args=args,
        kwargs=keywords,
        target=node.target,
        meta=node.meta,
        name=node.name,
        op=node.op,
        users=node.users,
        all_input_nodes=node.all_input_nodes,
        graph=node.graph,
        normalized_arguments=lambda _: (args, keywords),
        seen=seen,
    )


def ignored(node: Any) -> list[str]:
    """The arguments that say something and that nobody looked at."""
    arguments = list(getattr(getattr(node.target, "_schema", None), "arguments", ()))
    found = []
    for at, argument in enumerate(arguments):
        values: Any = tuple.__iter__(node.args)
        given = list(values)
        key: Any = at if at < len(given) else argument.name
        if key in node.seen or argument.name in _WITHOUT_EFFECT:
            continue
        value = given[at] if at < len(given) else dict.get(node.kwargs, argument.name, argument.default_value)
        default = argument.default_value if argument.has_default_value() else None
        is_plain = argument.has_default_value() or not _is_nothing(value)
        if value != default and value is not None and is_plain:
            found.append(f"{argument.name}={value}")
    return found


def _is_nothing(value: Any) -> bool:
    """The value of an argument without a default asks for nothing."""
    return value is False or value == 0 or (isinstance(value, list | tuple) and not any(value))


def _args(values: Any, seen: set[Any]) -> Any:
    made = _Args(values)
    made.seen = seen
    return made
