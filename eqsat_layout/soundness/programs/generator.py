"""Random Relax modules, with options to optimise them with.

In: a source of choices: a seed, a recorded sequence, or hypothesis. Out: a :class:`RandomProgram`: one or several
functions with layouts that are frozen and desired at random. The same choices give the same program; smaller ones a
simpler one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.soundness.programs.adversarial_costs import AdversarialCosts
from eqsat_layout.soundness.programs.choices import Choices
from eqsat_layout.soundness.programs.ops import kinds_for
from eqsat_layout.soundness.programs.ops_schema import of_unknown_size
from eqsat_layout.soundness.programs.writer import EXTENTS, FunctionWriter, ModuleWriter, Step

_ODD: Final = (9, 1, 3, 7, 15, 17, 25, 31, 33, 41, 57, 63, 65, 100)
DTYPES: Final = ("float32", "float16", "int32", "int8", "uint8", "int64", "float64", "bool")


@dataclass(frozen=True)
class RandomProgram:
    """A well formed ``module``, and ``options`` for ``optimize``. ``kinds``: the kinds of steps that it was made of."""

    module: Any
    options: dict[str, Any]
    kinds: tuple[str, ...] = ()

    def text(self) -> str:
        """The module as TVMScript, constants included, under its options."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"# optimize(mod, {options})\n{self.module.script(show_meta=True)}"


def make_program(
    choices: Choices, *, known_sizes: bool = False, mostly: Step | None = None, odd: bool = False
) -> RandomProgram:
    """The program that ``choices`` make. ``known_sizes``: none that only the data says, as devices have it;
    ``mostly``: half of its steps are of this kind; ``odd``: extents near multiples of vectors, and bfloat16."""

    def kinds(w: FunctionWriter, x: Any) -> dict[Step, int]:
        found = {kind: n for kind, n in kinds_for(w, x).items() if not known_sizes or kind is not of_unknown_size}
        return {kind: sum(found.values()) if kind is mostly else n for kind, n in found.items()}

    writer = ModuleWriter(choices, kinds)
    FunctionWriter(writer, "main", _params(choices, odd), depth=0).write(9)
    if choices.chance(8):
        FunctionWriter(writer, "other", _params(choices, odd), depth=1).write(3)
    return RandomProgram(tvm.IRModule(writer.functions), _options(writer), tuple(writer.kinds))


def programs() -> Any:
    """A hypothesis strategy of programs. Raises :class:`~eqsat_layout.errors.EqsatError` without hypothesis."""
    try:
        from hypothesis import strategies as st
    except ImportError:
        raise EqsatError("a strategy of programs needs hypothesis: pip install hypothesis") from None

    return st.composite(lambda draw: make_program(Choices(lambda n: draw(st.integers(0, n - 1)))))()


def _params(choices: Choices, odd: bool) -> list[Any]:
    """Types of parameters: tensors, sometimes of a symbolic batch, and tuples of them."""
    symbol = tirx.Var("n", "int64") if choices.chance(12) else None
    dtype = choices.weighted(
        {"float32": 64, "float16": 8, "int32": 6, "int8": 6, "uint8": 4, "int64": 4, "float64": 3, "bool": 5}
        | ({"bfloat16": 30} if odd else {})
    )
    types = []
    for _ in range(choices.choice((1, 1, 2, 3))):
        rank = choices.choice((4, 4, 4, 3, 2, 1, 5, 0))
        shape: list[Any] = [choices.choice(EXTENTS) for _ in range(rank)]
        if rank and symbol is not None:
            shape[0] = symbol
        elif rank and choices.chance(2):
            shape[choices.below(rank)] = 0
        if odd and rank:
            shape[-1] = choices.choice(_ODD)
        types.append(relax.TensorType(shape, dtype))
        if choices.chance(15):
            dtype = choices.choice(DTYPES)
    if len(types) > 1 and choices.chance(15):
        pair = relax.TupleType(types[:2])
        return [relax.TupleType([pair, types[0]]) if choices.chance(40) else pair, *types[2:]]
    return types


def _options(writer: ModuleWriter) -> dict[str, Any]:
    choices = writer.choices
    options: dict[str, Any] = {"candidates": choices.chance(50), "approx": choices.chance(50)}
    if choices.chance(30):
        options["cost_model"] = AdversarialCosts(choices.below(1000))
    if writer.desirable and choices.chance(40):
        desired = {name: list(choices.choice(layouts)) for name, layouts in writer.desirable.items()}
        options["desired_layouts"] = desired
    return options
