"""The network of both demos.

In: how large it is to be. Out: a module, and what it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from eqsat_layout.models import resnet50


@dataclass(frozen=True)
class DemoNet:
    """``width`` and ``blocks`` are ResNet-50's own unless a smaller net is wanted. ``repeat``: runs that are timed."""

    image: int = 224
    batch: int = 1
    repeat: int = 10
    seed: int = 0
    width: int = 64
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    target: Any = None
    run: bool = True

    @property
    def title(self) -> str:
        """The network and the shape of its input."""
        return f"ResNet-50 {self.batch}x3x{self.image}x{self.image}"

    def module(self) -> tvm.IRModule:
        """The network with random weights, the same every time."""
        return resnet50(self.batch, self.image, seed=self.seed, width=self.width, blocks=self.blocks)

    def input(self) -> npt.NDArray[np.float32]:
        """Random numbers, the same every time."""
        shape = (self.batch, 3, self.image, self.image)
        return np.random.default_rng(self.seed).standard_normal(shape, dtype=np.float32)
