"""One folder with all that a card is asked: ``python -m bench.cuda.programs --bundle FOLDER NETWORK...``.

In: names of networks, a machine. Out: programs with machine code for it, what they should give, and the script that
runs them (:mod:`bench.cuda.run_bundle`) with those files of both packages that it needs: no TVM, no compiler. Weights
are not carried: each constant that a program holds is replaced by numbers that a seed makes, spread as they were, and
what a network gives with those is worked out here, on the CPU, from the kernels that the program was generated from.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, tirx

import eqsat_layout
from bench.cuda.bundles.candidates import candidates, renamed
from bench.cuda.bundles.cases import cases, made
from bench.cuda.bundles.ceilings import ceiling
from bench.cuda.bundles.data import Array, Carried, Recipe, numpy_type, recipe_like
from bench.cuda.bundles.items import NETWORK, Item, write_manifest
from bench.cuda.bundles.kernels import kernels
from bench.cuda.tables import of_precision, options_of
from bench.results import flat
from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.skeleton import Skeleton
from eqsat_layout.notes import Notes
from eqsat_layout.planning.compile_anew import compile_anew
from eqsat_layout.planning.options import Options
from eqsat_layout.planning.source_module import as_module
from eqsat_layout.targets.cuda.host.executable import CudaProgram
from eqsat_layout.targets.cuda.machines import model_name
from eqsat_layout.targets.cuda.target import CudaTarget
from eqsat_layout.targets.registry import target as target_of

MOST_BYTES: Final = 64 << 20
"""Of a bundle: what a lent machine takes."""

_ROOT: Final = Path(__file__).parents[3]
_FOR_PEERS: Final = ("bench/networks/__init__.py", "bench/networks/real.py", "bench/cuda/bundles/jax_networks.py")
"""Imported where torch or JAX is."""

_TOLERANCES: Final = {"float32": 5e-3, "tensorfloat32": 5e-2, "float16": 5e-2, "bfloat16": 2e-1}
"""Of a whole network: what rounding grows to on its way."""


_DAMPED: Final = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
"""What weights of a seed are multiplied by, until a network's results are of ordinary size: signals grow from layer
to layer where weights are not those that norms were made for (in ResNet-50 beyond what halves hold)."""
_ORDINARY: Final = (1e-3, 1e3)
"""Of the largest number of a result; what is NaN on its way may come out as 0."""


@dataclass(frozen=True)
class Network:
    """``make``: from a batch to a module. ``precision``: what products are done in (:func:`of_precision`)."""

    name: str
    make: Callable[[int], tvm.IRModule]
    precision: str
    batch: int

    @property
    def title(self) -> str:
        return f"{Path(self.name).name.replace(':', '_')}_{self.precision}_{self.batch}"


@dataclass(frozen=True)
class Effort:
    """``cases``: their names, or all. ``plans``: of each product, 0 for no candidates. ``kernels``: of each network by
    themselves, which fill the database; those of its plan, and as many others. ``ceiling_turns``: see :func:`ceiling`.
    """

    cases: Sequence[str] | None = None
    plans: int = 4
    kernels: int = 0
    repeats: int = 20
    ceiling_turns: int = 4096


class SeededTarget(CudaTarget):
    """What it builds computes with numbers of a seed in place of its constants; :attr:`built` is the last of it."""

    built: tvm.IRModule
    recipes: dict[bytes, Recipe]

    def build(self, mod: tvm.IRModule, notes: Notes) -> CudaProgram:
        """Small constants, and what is no float, stay."""
        self._apart, self.recipes = Skeleton.of(mod), {}
        self.built = self.damped(1.0)
        return super().build(self.built, notes)

    def damped(self, factor: float) -> tvm.IRModule:
        """What was built last, with all numbers of seeds times ``factor``."""
        tensors = [self._seeded(tensor, seed + 1, factor) for seed, tensor in enumerate(self._apart.tensors)]
        return Skeleton(self._apart.module, tuple(tensors)).whole()

    def _seeded(self, tensor: Any, seed: int, factor: float) -> Any:
        recipe = recipe_like(tensor.numpy(), seed)
        if recipe is None:
            return tensor
        if factor == 1.0:
            self.recipes[_digest(recipe.array().tobytes())] = recipe
        return tvm.runtime.tensor(recipe.damped(factor).array())

    def constants_of(self, program: CudaProgram) -> list[Recipe | Carried]:
        """How those of the program that was built last are made."""
        return [self.recipes.get(_digest(bytes(one))) or Carried(bytes(one)) for one in program.constants]


def write_bundle(
    folder: Path, networks: Sequence[Network], target: CudaTarget, effort: Effort, say: Callable[[str], None] = print
) -> None:
    """:class:`EqsatError` where it gets larger than :data:`MOST_BYTES`, and where there is something in the folder;
    after all else is written, where there is a network that can't be in it."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise EqsatError(f"{folder} is not empty")
    copy_running_side(folder)
    of_networks: list[Item] = []
    seen: set[Any] = set()
    timed: set[Any] = set()
    refused: list[str] = []
    for network in networks:  # they come first: it is they for which something may be missing here
        say(network.title)
        own = SeededTarget(of_precision(target, network.precision).tvm, approx=target.approx)
        try:
            item, program, expected = _network(network, own)
        except EqsatError as error:
            refused.append(f"{network.title}: {error}")
            continue
        of_networks.append(_written(folder, item, program, expected))
        functions = {str(v.name_hint): f for v, f in own.built.functions_items() if isinstance(f, tirx.PrimFunc)}
        found = candidates(functions, own, effort.plans, effort.repeats, seen) if effort.plans else ()
        of_networks += [_written(folder, renamed(one, network.title), program) for one, program in found]
        if effort.kernels:
            plain = CudaTarget(own.tvm, approx=own.approx)  # its constants are what they are
            mod, rest = _module(network)
            singles = kernels(mod, plain, rest, effort.kernels, effort.repeats, timed, say)
            of_networks += [_written(folder, one, program) for one, program in singles]
    items = [_written(folder, *ceiling(target.machine.arch, 4 * target.machine.multiprocessors, effort.ceiling_turns))]
    for case in cases(effort.cases):
        say(case.name)
        items.append(_written(folder, *made(case, target)))
    items += of_networks
    arch, model = (str(target.tvm.attrs.get(name, "")) for name in ("arch", "model"))
    head = {
        "machine": repr(target.machine),
        "arch": arch,
        "model": model_name(arch, model),
        "version": version("eqsat-layout"),
        "made": time.time_ns(),
    }
    write_manifest(folder, head, items)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{len(items)} programs, {total / 2**20:.1f} MiB")
    if total > MOST_BYTES:
        raise EqsatError(f"{folder} has {total / 2**20:.0f} MiB, more than {MOST_BYTES >> 20}: take fewer networks")
    if refused:
        raise EqsatError(f"{folder} is without {'; '.join(refused)}")


def _written(folder: Path, item: Item, program: CudaProgram, expected: Sequence[Array] | None = None) -> Item:
    item.written(folder, program, expected)
    return item


def _network(network: Network, target: SeededTarget) -> tuple[Item, CudaProgram, list[Array]]:
    """What it gives is worked out by the CPU target, from the module that the CUDA target generated kernels from."""
    mod, rest = _module(network)
    program = compile_anew(mod, target, rest, Notes())
    types = [(tuple(map(int, param.ty.shape.values)), str(param.ty.dtype)) for param in mod["main"].params]
    inputs = [_input(shape, dtype, number) for number, (shape, dtype) in enumerate(types)]
    said = {
        "network": network.name,
        "batch": network.batch,
        "precision": network.precision,
        "launches": sum(len(function.launches) for function in program.plan.functions),
    }
    constants = target.constants_of(program)
    factors, is_right = (_DAMPED, _is_ordinary) if target.recipes else ((1.0,), _is_finite)
    for factor in factors:
        expected = _on_cpu(target.damped(factor), inputs)
        if all(map(is_right, expected)):
            damped = [one.damped(factor) if isinstance(one, Recipe) else one for one in constants]
            item = Item(
                network.title, NETWORK, damped, inputs, _TOLERANCES[network.precision], {**said, "damped": factor}
            )
            return item, program, expected
    raise EqsatError("what it gives for weights of a seed is not of ordinary size")


def _module(network: Network) -> tuple[tvm.IRModule, Options]:
    """And the options that are left to compile it with."""
    return as_module(network.make(network.batch), options_of(network.precision))


def _is_ordinary(result: Array) -> bool:
    least, most = _ORDINARY
    return result.dtype.kind in "iub" or bool(least <= np.abs(result.astype("float64")).max(initial=0.0) <= most)


def _is_finite(result: Array) -> bool:
    return bool(np.isfinite(result.astype("float64")).all())


def _on_cpu(mod: tvm.IRModule, inputs: Sequence[Recipe]) -> list[Array]:
    given = [tvm.runtime.tensor(one.array()) for one in inputs]
    machine = relax.VirtualMachine(target_of("llvm").build(mod, Notes()), tvm.cpu())
    return flat(machine["main"](*given))


def _input(shape: tuple[int, ...], dtype: str, number: int) -> Recipe:
    """Whole numbers may be places in a table: they are few."""
    is_whole = numpy_type(dtype).kind in "iu"
    if is_whole:
        return Recipe(shape, dtype, 1000 + number, mean=3.5, deviation=2.0, low=0.0, high=7.0, whole=True)
    return Recipe(shape, dtype, 1000 + number)


def copy_running_side(folder: Path) -> None:
    """What the script imports where TVM is not, each file at its place; the simulator too, for rehearsals."""
    packages = (_ROOT, Path(eqsat_layout.__file__).parents[1])
    for path in (*_imported(packages), *(_ROOT / name for name in _FOR_PEERS)):
        root = next(root for root in packages if path.is_relative_to(root))
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    runtime = Path("eqsat_layout", "soundness", "cuda", "runtime")
    shutil.copytree(packages[1] / runtime, folder / runtime)


def _imported(packages: Sequence[Path]) -> list[Path]:
    """Files that a process without TVM has, after it has imported what runs bundles."""
    command = (
        "import sys; sys.modules['tvm'] = None; import bench.cuda.run_bundle, eqsat_layout.soundness.cuda.driver;"
        "names = [n for n in sys.modules if n.split('.')[0] in ('bench', 'eqsat_layout')];"
        "print('\\n'.join(filter(None, (sys.modules[n].__file__ for n in names))))"
    )
    paths = [str(folder) for folder in packages]
    start = f"import sys; sys.path[:0] = {paths!r}; {command}"
    done = subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()
