"""Modules of torch as exported programs.

In: an ``nn.Module`` and examples of what it takes. Out: an ``ExportedProgram``, or an error that says what the module
takes and what was given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import said_by
from eqsat_layout.readers.quiet import talk_to_log


def exported(model: Any, inputs: Any) -> Any:
    """``inputs``: tensors or arrays, one, some in a tuple or list, or by names in a dictionary."""
    torch = importlib.import_module("torch")
    model = getattr(model, "_orig_mod", model)  # of what torch.compile gave
    name = type(model).__name__
    if inputs is None:
        raise EqsatError(f"{name} is an nn.Module: give example inputs, inputs=(tensor, ...)")
    if model.training:
        raise EqsatError(f"{name} is in training mode: call its .eval() first")
    named = _tensors(torch, dict(inputs)) if isinstance(inputs, Mapping) else {}
    given = () if named else _tensors(torch, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,))
    _check_call(model, given, named)
    try:
        with torch.no_grad(), talk_to_log(), _plain_results(torch, model):
            return importlib.import_module("torch.export").export(model, given, named)
    except Exception as error:  # whatever the exporter and the module raise
        raise EqsatError(f"{name} can't be exported: {said_by(error)}{_place(error)}") from error


def _tensors(torch: Any, value: Any) -> Any:
    """Arrays, wherever they are in ``value``, as tensors of their own."""

    def tensor(array: Any) -> Any:
        try:
            return torch.from_numpy(np.array(array, array.dtype.newbyteorder("="), order="C"))
        except TypeError as error:
            raise EqsatError(f"inputs: an array of {array.dtype} is no tensor: {said_by(error)}") from error

    return torch.utils._pytree.tree_map_only(np.ndarray, tensor, value)


def _check_call(model: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """:class:`EqsatError` where ``forward`` takes other arguments."""
    if isinstance(model, importlib.import_module("torch").jit.ScriptModule):
        raise EqsatError(f"{type(model).__name__} is TorchScript: give the nn.Module that it was made of")
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        got = [_said(value) for value in given] + [f"{name}={_said(value)}" for name, value in named.items()]
        takes = ", ".join(str(one.replace(annotation=one.empty)) for one in signature.parameters.values())
        what = f"inputs: {type(model).__name__}.forward takes ({takes}), got ({', '.join(got)})"
        raise EqsatError(f"{what}: {error}") from error


def _said(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{value.dtype} {tuple(shape)}".removeprefix("torch.")


def _place(error: Exception) -> str:
    """The line of the user's that torch's exporter stopped at, where it says that behind its own words."""
    place = str(error).partition("The following call raised this error:")[2].splitlines()[1:3]
    return f" ({' '.join(line.strip() for line in place)})" if place else ""


@contextlib.contextmanager
def _plain_results(torch: Any, model: Any) -> Iterator[None]:
    """Dataclasses that ``model`` gives, and that torch does not know, as tuples of their fields."""
    known = torch.utils._pytree.SUPPORTED_NODES

    def plain(value: Any) -> Any:
        if type(value) in known:
            return torch.utils._pytree.tree_map(plain, value, is_leaf=lambda one: one is not value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return tuple(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
        return value

    hook = model.register_forward_hook(lambda _, __, result: plain(result))
    try:
        yield
    finally:
        hook.remove()
