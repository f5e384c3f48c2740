"""A model that can be run: compiled from whatever it is given as, or opened from a library.

In: a source, a target, options. Out: :class:`Session`, with the signature of ONNX Runtime's ``run``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from eqsat_layout.errors import EqsatError, InputError
from eqsat_layout.planning.options import Options, check_options, with_options_in_help
from eqsat_layout.session.device_runs import DeviceRuns
from eqsat_layout.session.feed import check_names, fed_tensors
from eqsat_layout.session.interface import TensorSpec
from eqsat_layout.session.known_file import KnownFile
from eqsat_layout.session.library import opened_program, written_to
from eqsat_layout.session.runs import Runs
from eqsat_layout.session.runtime import CPU
from eqsat_layout.session.size_errors import size_error
from eqsat_layout.session.tensors import Array, Staging
from eqsat_layout.system.forks import in_one_piece
from eqsat_layout.system.suffixes import COMPILED, ending_of, path_of
from eqsat_layout.system.tvm_lock import check_not_left_behind
from eqsat_layout.system.without_torch import without_torch
from eqsat_layout.targets.gpu.host.device_program import DeviceProgram

if TYPE_CHECKING:  # a library is opened without TVM's compiler, readers and planning
    from eqsat_layout.report.plan import Plan
    from eqsat_layout.session.compiled import SessionModel


@with_options_in_help
class Session:
    """``Session("model.onnx").run(None, {"x": array})``: a model, compiled and ready to run.

    ``source`` is a path (``.onnx``, ``.pt2``, ``.py``, ``.json``, the ``.so`` that :meth:`save` wrote, whose code runs,
    or the ``.program`` of a device), an ONNX ``ModelProto``, a torch ``ExportedProgram``, an ``nn.Module`` with example
    ``inputs``, which may follow it, or an IRModule. Several threads may run one session.
    """

    def __init__(self, source: Any, example: Any = None, /, *, target: Any = None, **options: Unpack[Options]) -> None:
        if example is not None:
            if options.get("inputs") is not None:
                raise EqsatError("example inputs are given twice: behind the model, and as inputs=")
            options["inputs"] = example
        check_options(options)
        self._staging: deque[Staging] = deque()
        self._given = (source, target, options)
        self._read: SessionModel | None = None
        self._file: Path | None = None
        if _is_compiled(source):
            _check_nothing_is_asked(source, target, options)
            self._file = Path(source)
            self._executable, self._interface = opened_program(self._file)
            return
        with without_torch():
            known = KnownFile.of(source, target, options)
            found = None if known is None else known.opened()
        if found is not None:
            self._file, self._executable, self._interface = found
            return
        self._executable, self._interface, notes = self._model.compiled()
        if known is not None and self._model.runs_here:
            known.keep(self._executable, notes)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of each input."""
        return self._interface.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The same of the outputs; those in tuples one after the other."""
        return self._interface.outputs

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Array]:
        """The outputs that are named, in that order, None for all, as NumPy arrays.

        ``input_feed``: NumPy arrays, or tensors of torch or TVM, by name, of the shapes and dtypes of :attr:`inputs`.
        ``run_options`` is there because ONNX Runtime has it. Raises :class:`~eqsat_layout.errors.InputError` that says
        what was expected and what came.
        """
        positions = None if output_names is None else self._positions(output_names)
        try:
            staging = self._staging.pop()
        except IndexError:
            staging = {}
        tensors = fed_tensors(input_feed, self._interface, staging)
        try:
            results = self._runs(tensors)
        except RuntimeError as error:
            unfit = size_error(error, self.inputs, tensors)
            if unfit is None:
                raise
            raise unfit from error
        self._staging.append(staging)
        return results if positions is None else [results[position] for position in positions]

    @cached_property
    def plan(self) -> Plan:
        """What was chosen and why; worked out when it is asked for."""
        return self._model.plan()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a library, ``.so``, with all weights, that :class:`Session` opens again on machines such as this; of
        what was compiled for a device a ``.program``, which is data."""
        written_to(Path(path), self._executable if self._file is None else self._file)

    def _positions(self, names: Sequence[str]) -> list[int]:
        if isinstance(names, str):
            raise InputError(f"outputs must be a list of names, got {names!r}")
        known = [spec.name for spec in self.outputs]
        check_names(names, known, "output")
        return list(map(known.index, names))

    @property
    def _model(self) -> SessionModel:
        if _is_compiled(self._given[0]):
            raise EqsatError("a library holds no plan: make a session of the model itself")
        if self._read is None:
            check_not_left_behind()  # it may have been in the middle of an import
            with without_torch(), in_one_piece():
                from eqsat_layout.session.compiled import SessionModel

                self._read = SessionModel(*self._given)
        return self._read

    @cached_property
    def _runs(self) -> Runs | DeviceRuns:
        if isinstance(self._executable, DeviceProgram):
            return DeviceRuns(self._executable, self._interface.entry)
        device = CPU if self._file is not None else self._model.device
        return Runs(self._executable, device, self._interface.entry, branches=self._interface.branches)

    def __getstate__(self) -> Any:
        raise TypeError("a Session can't be pickled: save() it, and open the library in the other process")

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        return f"<Session of ({inputs}) -> ({', '.join(f'{spec.name}: {spec}' for spec in self.outputs)})>"


def _is_compiled(source: Any) -> bool:
    return isinstance(source, str | os.PathLike) and ending_of(path_of(source)) in COMPILED


def _check_nothing_is_asked(source: Any, target: Any, options: Options) -> None:
    late = [name for name, value in options.items() if value is not None]
    if late:
        raise EqsatError(f"{source}: is compiled already, so {late[0]}= comes too late")
    if target is not None:
        from eqsat_layout.targets.registry import target as target_of

        target_of(target)  # raises for one that is none
