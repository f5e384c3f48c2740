"""Constants in pages of the library itself, which the system reads when they are used and several processes share.

In: a lowered module. Out: the same, asking a function of the library for its large constants, and the object file of
that function with their data. TVM's own way is to copy the file into memory when it is opened, and each constant again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.support import cc
from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

from eqsat_layout.graph.skeleton import SharedTensors, data_of, kind_of
from eqsat_layout.system.frames import ALIGNMENT, padding_after
from eqsat_layout.tir.structural import structural_map

LEAST: Final = 4096
"""Bytes of a constant that is kept so. A smaller one shares its page, and each costs a call in every run."""

_CODE: Final = Path(__file__).with_suffix(".c")
_FUNCTION: Final = "eqsat_layout_constants"
_DATA: Final = "constants.bin"


@dataclass(frozen=True)
class MappedConstants:
    """``module`` asks the function that :meth:`object_file` defines for ``tensors``."""

    module: tvm.IRModule
    tensors: tuple[Any, ...]

    @staticmethod
    def of(lowered: tvm.IRModule) -> MappedConstants:
        """The constants of at least ``LEAST`` bytes, each once; ``lowered`` is not changed."""
        tensors = SharedTensors()
        types: dict[int, Any] = {}

        def place(constant: Any) -> int | None:
            value = constant.value
            if not isinstance(value, tvm.runtime.Tensor) or len(data_of(value)) < LEAST:
                return None
            number = tensors.number(value)
            types.setdefault(number, constant.ty)
            return number

        reading = {
            var: _Reading(func, place) for var, func in lowered.functions_items() if isinstance(func, relax.Function)
        }
        array = relax.Var("constants", relax.TupleType([types[number] for number in range(len(tensors.kept))]))
        functions = dict(lowered.functions_items()) | {
            var: own.function(array) for var, own in reading.items() if own.variables
        }
        module = tvm.IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
        return MappedConstants(module, tuple(tensors.kept))

    def object_file(self, folder: Path) -> Path:
        """Made in ``folder`` by the C compiler, which finds the data there whatever the folder is called."""
        with (folder / _DATA).open("wb") as file:
            for tensor in self.tensors:
                file.write(data_of(tensor))
                file.write(bytes(padding_after(file.tell())))
        (folder / "constants.inc").write_text(_described(self.tensors))
        includes = [f"-I{path}" for path in (".", find_include_path(), find_dlpack_include_path())]
        command = [cc.get_cc(), "-x", "c", "-O1", "-fPIC", *includes, "-c", str(_CODE), "-o", "constants.o"]
        subprocess.run(command, check=True, cwd=folder)
        return folder / "constants.o"


class _Reading:
    """A function whose large constants are variables."""

    def __init__(self, function: Any, place: Callable[[Any], int | None]):
        self.variables: dict[int, Any] = {}
        """By the place of the constant."""

        def variable(constant: Any) -> Any:
            number = place(constant)
            return constant if number is None else self.variables.setdefault(number, relax.Var("constant", constant.ty))

        self._function = structural_map(function, (tvm.ir.GenericConst, variable))

    def function(self, array: Any) -> Any:
        """It, which first asks for what it uses of the ``array``."""
        own = self._function
        asked = relax.Call(relax.ExternFunc(_FUNCTION), [], None, [array.ty])
        bindings = [relax.VarBinding(array, asked)]
        for number, variable in self.variables.items():
            bindings.append(relax.VarBinding(variable, relax.TupleGetItem(array, number)))
        body = relax.SeqExpr([relax.BindingBlock(bindings), *own.body.blocks], own.body.body)
        return relax.Function(own.params, body, own.ret_ty, own.is_pure, own.attrs, own.span)


def _described(tensors: Sequence[Any]) -> str:
    """What the C source includes."""
    extents: list[int] = []
    lines: list[str] = []
    place = 0
    for tensor in tensors:
        shape, dtype = kind_of(tensor)
        kind = tvm.DataType(dtype)
        lines.append(
            f"{{{{1, 1}}, 0, keep, 0, {{data + {place}, {{kDLCPU, 0}}, {len(shape)}, "
            f"{{{int(kind.type_code)}, {int(kind.bits)}, {int(kind.lanes)}}}, extents + {len(extents)}, 0, 0}}}},"
        )
        extents += shape
        size = len(data_of(tensor))
        place += size + padding_after(size)
    return "\n".join(
        (
            f"#define COUNT {len(tensors)}",
            f'__asm__(".pushsection .eqsat_layout,\\"aw\\"\\n.balign {ALIGNMENT}\\n"',
            f'        "eqsat_layout_data:\\n.incbin \\"{_DATA}\\"\\n.popsection\\n");',
            'extern char data[] __asm__("eqsat_layout_data") __attribute__((visibility("hidden")));',
            f"static int64_t extents[] = {{{', '.join(map(str, extents)) or 0}}};",
            "static DLManagedTensorVersioned tensors[COUNT] = {",
            *lines,
            "};",
            "",
        )
    )
