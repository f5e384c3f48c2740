"""Running ops on several worlds at once (soundness room), built for this machine without optimisation.

In: signatures. Out: results as NumPy arrays, worlds in front. Random models call few ops often, which is what compiled
kernels are good at; the interpreter of TIR checks them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from eqsat_layout.graph.graph import Signature

Array = npt.NDArray[Any]


class Kernels:
    """The kernels of some ops, by key."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        functions = {f"op{i}": s.func.with_attr("global_symbol", f"op{i}") for i, s in enumerate(signatures.values())}
        with tvm.transform.PassContext(opt_level=0):
            library = tvm.compile(tvm.IRModule(functions), {"kind": "llvm", "opt-level": 0})
        self._kernels = {key: library[f"op{i}"] for i, key in enumerate(signatures)}

    def run(self, signature: Signature, operands: Sequence[Array]) -> list[Array]:
        """One array per result."""
        kernel = self._kernels[signature.key]
        types = [t for t in signature.results if t is not None]
        results = [np.empty((len(operands[0]), *(int(e) for e in t.shape)), t.dtype) for t in types]
        for world in range(len(operands[0])):
            made = [tvm.runtime.empty([int(e) for e in t.shape], t.dtype) for t in types]
            kernel(*(tvm.runtime.tensor(np.array(a[world])) for a in operands), *made)
            for result, tensor in zip(results, made, strict=True):
                result[world] = tensor.numpy()
        return results
