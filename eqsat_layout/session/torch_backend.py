"""``torch.compile(model, backend="eqsat_layout")``.

In: the graphs that torch's Dynamo cuts a model into, with example inputs. Out: a function for each that runs it
compiled, or as torch has it, with a line in the log that says why. Parameters are constants: folded and packed.
"""

from __future__ import annotations

import copy
import importlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import said_by
from eqsat_layout.planning.options import check_options
from eqsat_layout.readers.quiet import talk_to_log
from eqsat_layout.readers.torch.decompositions import decompositions
from eqsat_layout.session.session import Session
from eqsat_layout.session.torch_held import Held, are_apart
from eqsat_layout.session.torch_views import orders, views_split

_logger = logging.getLogger("eqsat_layout")

_MOST_MODELS: Final = 64
"""Models of one graph that are compiled; whoever makes new parameters for each call would compile without end."""

_compiling: Final = threading.Lock()


def backend(graph: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """What the entry point of ``torch_dynamo_backends`` names. ``options``: those of ``torch.compile``, which are
    :class:`~eqsat_layout.planning.options.Options`.

    A graph that gradients are wanted of, or that can't be exported, read or compiled, is run by torch.
    Raises :class:`TypeError` for an option that is none.
    """
    torch = importlib.import_module("torch")
    own: Any = options.get("options") or {}
    check_options(own)
    try:
        with importlib.import_module("torch._guards").tracing(None):  # exporting is a trace of its own
            return _Compiled(torch, graph, example_inputs, own)
    except _NothingToComputeError:
        _logger.debug("torch runs a graph of %d nodes itself: it gives views of its inputs", len(graph.graph.nodes))
        return graph.forward  # type: ignore[no-any-return]
    except Exception as error:  # Dynamo must get a function, whatever exporters and frontends raise
        _logger.warning("torch runs a graph of %d nodes itself: %s", len(graph.graph.nodes), said_by(error))
        return graph.forward  # type: ignore[no-any-return]


class _NothingToComputeError(Exception):
    """A graph of which none of the results has memory of its own."""


class _Compiled:
    """One graph with its parameters as constants. Sizes that Dynamo gives beside tensors are known from these."""

    def __init__(
        self,
        torch: Any,
        graph: Any,
        examples: Sequence[Any],
        options: Any,
        *,
        numbers_are_known: bool = True,
        held_places: Collection[int] = (),
    ):
        self._torch, self._graph = torch, graph
        held = {i: one for i, one in enumerate(examples) if i in held_places or _is_held(torch, one)}
        self._of_model = list(held)
        self._given_sizes = {i: one for i, one in enumerate(examples) if not isinstance(one, torch.Tensor)}
        self._others: dict[tuple[int, ...], Callable[..., Any]] = {}
        numbers = [i for i in _numbers(graph) if i not in held]
        self._numbers = {i: examples[i].item() for i in numbers} if numbers_are_known else {}
        self._examples, self._options = (examples if self._numbers else ()), options
        known = held.keys() | self._numbers.keys()
        self._tensors = [i for i, one in enumerate(examples) if isinstance(one, torch.Tensor) and i not in known]
        self._written: list[int] = []
        given = [examples[i] for i in self._tensors]
        wants = torch.is_grad_enabled() or _enables_gradients(torch, graph)
        if wants and any(one.requires_grad for one in (*held.values(), *given)):
            raise EqsatError("gradients are wanted: call it under torch.no_grad() or torch.inference_mode()")
        if any(one.device.type != "cpu" for one in (*held.values(), *given)):
            raise EqsatError("tensors that are not on the CPU")
        divided = views_split(torch, graph)
        self._views, self._orders = divided.views, orders(divided.computed)
        plain = _with_numbers(torch, divided.computed, {i: self._numbers.get(i) for i in numbers})
        self._sizes = _sizes(torch, graph, self._tensors, examples)
        self._free = [i for i, place in self._sizes.items() if place is None]
        program = self._exported(plain, held, examples)
        if written := self._written_by(program):
            held = {i: one for i, one in held.items() if i not in written}
            self._written, self._tensors = written, [*self._tensors, *(i for i in written if i not in self._tensors)]
            program = self._exported(plain, held, examples)
        elif divided.is_only_views:
            raise _NothingToComputeError
        self._held, self._watched = list(held), Held(torch, list(held.values()))
        self._session = Session(program, **options)
        self._names = [spec.name for spec in self._session.inputs]
        if strange := [str(spec) for spec in self._session.outputs if not hasattr(torch, spec.dtype)]:
            raise EqsatError(f"a result is {strange[0]}")

    def __call__(self, *given: Any) -> Any:
        """Results as the graph gives them: a tuple."""
        own = [given[i] for i in self._held]
        if not self._watched.are_as_before(own):
            if self._watched.are_of_another_model(own):
                return self._of_another_model(given)(*given)
            _logger.warning("torch runs a graph itself: its parameters were changed after it was compiled")
            return self._graph(*given)
        if any(given[i].item() != number for i, number in self._numbers.items()):
            return self._of_any_numbers(*given)
        if any(given[i] < 0 for i in self._free):
            _logger.warning("torch runs a graph itself: a number that it is given is below 0")
            return self._graph(*given)
        if self._written and not self._can_write(given):
            _logger.warning("torch runs a graph itself: it writes to memory that two of its inputs share")
            return self._graph(*given)
        feed = dict(zip(self._names, self._inputs(given), strict=True))
        made = [_tensor(self._torch, result) for result in self._session.run(None, feed)]
        for i in reversed(self._written):
            given[i].copy_(made.pop())
        made = [one.permute(np.argsort(order).tolist()) for one, order in zip(made, self._orders, strict=True)]
        return tuple(made) if self._views is None else self._views(*given, *made)

    def _of_another_model(self, given: Sequence[Any]) -> Callable[..., Any]:
        """The graph with the parameters of ``given``: Dynamo makes one graph for all models of a class that are alike,
        as the layers of a network that are compiled one by one."""
        key = tuple(id(given[i]) for i in self._of_model)
        with _compiling:
            if key not in self._others:
                self._others[key] = self._compiled_for(given)
        return self._others[key]

    def _compiled_for(self, given: Sequence[Any]) -> Callable[..., Any]:
        if len(self._others) >= _MOST_MODELS:
            _logger.warning("torch runs a graph itself: more than %d models have it", _MOST_MODELS)
            return self._graph  # type: ignore[no-any-return]
        examples = [self._given_sizes.get(i, one) for i, one in enumerate(given)]
        try:
            return _Compiled(self._torch, self._graph, examples, self._options, held_places=self._of_model)
        except Exception as error:  # as in :func:`backend`
            _logger.warning("torch runs a graph itself, for another model that has it: %s", said_by(error))
            return self._graph  # type: ignore[no-any-return]

    def _can_write(self, given: Sequence[Any]) -> bool:
        tensors = [one for one in given if isinstance(one, self._torch.Tensor)]
        return are_apart([given[i] for i in self._written], tensors)

    @cached_property
    def _of_any_numbers(self) -> Callable[..., Any]:
        """The graph with its numbers as inputs, for when they change; torch's where an op has to know them."""
        try:
            return _Compiled(self._torch, self._graph, self._examples, self._options, numbers_are_known=False)
        except Exception as error:  # as in :func:`backend`
            _logger.warning("torch runs a graph itself, as a number of the model was changed: %s", said_by(error))
            return self._graph  # type: ignore[no-any-return]

    def _inputs(self, given: Sequence[Any]) -> list[Any]:
        """Tensors, and for each number that is given by itself one without elements that is as long."""
        return [given[i] for i in self._tensors] + [self._torch.empty((int(given[i]), 0)) for i in self._free]

    def _written_by(self, program: Any) -> list[int]:
        """The inputs of the graph that a program writes to."""
        signature, order = program.graph_signature, [*self._tensors, *self._free]
        places = {name: order[at] for at, name in enumerate(signature.user_inputs) if at < len(order)}
        buffers = {int(name.removeprefix("held")) for name in signature.buffers_to_mutate.values()}
        return sorted(buffers | {places[name] for name in signature.user_inputs_to_mutate.values()})

    def _exported(self, graph: Any, held: dict[int, Any], examples: Sequence[Any]) -> Any:
        """The graph over its tensors alone, for all sizes that Dynamo leaves open. Its results have their axes in the
        order in which they lie in torch's memory; behind them comes what it writes to those of its inputs that are
        known to be written to."""
        torch: Any = self._torch
        tensors, sizes, written, orders = self._tensors, self._sizes, self._written, self._orders
        if below := [examples[i] for i in self._free if examples[i] < 0]:
            raise EqsatError(f"a number that it is given is {below[0]}, below 0")
        places = {i: place or (len(examples) + at, 0) for at, (i, place) in enumerate(sizes.items())}
        order = [*tensors, *(places[i][0] for i in self._free)]

        class Plain(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.graph = graph
                for i, one in held.items():
                    self.register_buffer(f"held{i}", one.detach())

            def forward(self, *given: Any) -> Any:
                values = {i: getattr(self, f"held{i}") for i in held} | dict(zip(order, given, strict=True))
                values |= {i: values[tensor].shape[axis] for i, (tensor, axis) in places.items()}
                values |= {i: values[i].clone() for i in written}
                results = self.graph(*(values.get(i) for i in range(len(examples))))
                laid = (one.permute(order) for one, order in zip(results, orders, strict=True))
                return *laid, *(values[i] for i in written)

        export = importlib.import_module("torch.export")
        types = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
        dims = [
            {axis: export.Dim.AUTO for axis, size in enumerate(types[i].shape) if isinstance(size, torch.SymInt)}
            for i in tensors
        ] + [{0: export.Dim.AUTO} if examples[i] > 1 else {} for i in self._free]  # Dynamo knows 0 and 1
        given = tuple(one.detach().clone() for one in self._inputs(examples))  # those are watched by Dynamo's guards
        with torch.no_grad(), talk_to_log():  # torch prints the whole graph where it fails
            shapes = (tuple(dims),) if dims else None  # torch takes no empty list for no inputs
            program = export.export(Plain().eval(), given, dynamic_shapes=shapes)
            return program.run_decompositions(decompositions(()))  # which say what is written to


def _tensor(torch: Any, result: Any) -> Any:
    """The same memory; NumPy has some of torch's dtypes by others' names only."""
    if result.dtype.isbuiltin == 1:
        return torch.from_numpy(result)
    return torch.from_numpy(result.view(f"uint{8 * result.itemsize}")).view(getattr(torch, result.dtype.name))


def _is_held(torch: Any, one: Any) -> bool:
    """Parameters and buffers of the model, which Dynamo gives as inputs and marks."""
    return isinstance(one, torch.nn.Parameter) or hasattr(one, "_dynamo_static_input_type")


def _enables_gradients(torch: Any, graph: Any) -> bool:
    """Whether a part of the graph is under ``torch.enable_grad()``."""
    switch = torch._C._set_grad_enabled
    return any(node.target is switch and True in node.args for node in graph.graph.nodes)


def _numbers(graph: Any) -> list[int]:
    """The inputs that are numbers of the model, as the eps of a norm: Dynamo gives these where sizes are dynamic."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    users = [[(user.op, user.target) for user in node.users] for node in inputs]
    return [i for i, own in enumerate(users) if own and all(one == ("call_method", "item") for one in own)]


def _with_numbers(torch: Any, graph: Any, numbers: Mapping[int, float | None]) -> Any:
    """The graph with such inputs as what they are, or as tensors without axes where that is None. Beside floats of
    some axes these change no type."""
    made = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    mode = importlib.import_module("torch.amp.autocast_mode")
    for node in made.graph.nodes:  # exporting only notes torch's own ones, and takes values for what they are without
        node.target = {mode._enter_autocast: _entered, mode._exit_autocast: _left}.get(node.target, node.target)
    inputs = [node for node in made.graph.nodes if node.op == "placeholder"]
    for i, number in numbers.items():
        value = inputs[i] if number is None else number
        for item in list(inputs[i].users):
            for user in list(item.users):
                if number is None and not any(_is_float(torch, one) for one in user.all_input_nodes):
                    raise EqsatError(f"node {user.name} is no arithmetic with a tensor of floats")
                user.args, user.kwargs = torch.fx.node.map_arg(
                    (user.args, user.kwargs), lambda one, item=item, value=value: value if one is item else one
                )
            made.graph.erase_node(item)
    made.recompile()
    return made


def _is_float(torch: Any, node: Any) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 0


def _entered(*asked: Any) -> Any:
    context = importlib.import_module("torch").amp.autocast(*asked)
    context.__enter__()
    return context


def _left(context: Any) -> None:
    context.__exit__(None, None, None)


def _sizes(torch: Any, graph: Any, tensors: list[int], examples: Sequence[Any]) -> dict[int, tuple[int, int] | None]:
    """The inputs that are whole numbers: a tensor and an axis that each is the size of, or ``None`` for one that is
    given by itself."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    types = [node.meta.get("example_value") for node in inputs]
    return {  # those that nothing is made of are strides, which only Dynamo itself asks for
        i: _where(torch, one, types, tensors)
        for i, one in enumerate(examples)
        if not isinstance(one, torch.Tensor) and inputs[i].users
    }


def _where(torch: Any, size: Any, types: Sequence[Any], tensors: list[int]) -> tuple[int, int] | None:
    """The tensor and axis that a size is of."""
    for i in tensors:
        for axis, extent in enumerate(types[i].shape):
            are_symbols = isinstance(size, torch.SymInt) and isinstance(extent, torch.SymInt)
            if are_symbols and extent.node.expr == size.node.expr:
                return i, axis
    return None
