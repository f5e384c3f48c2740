"""Networks for tables: the ten real ones, the hardest for TVM, architectures of the zoo, models of timm, and files.

In: a name. Out: a Relax module. What comes of torch needs the dependency group ``bench``, and is imported only then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.relax import op

from bench.networks.hard_for_tvm import NETWORKS as SMALL
from eqsat_layout.errors import EqsatError
from eqsat_layout.models import resnet50
from eqsat_layout.planning.source_module import as_module

ZOO: Final = (
    *("resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0", "convnext_tiny"),
    *("inception_v3", "unet", "maxvit_t", "vit_b_16", "bert"),
)
"""Those of bench/networks/real.py, which ``--small`` gives smaller inputs."""

TIMM: Final = "timm:"
OTHERS: Final = "an architecture of bench/networks/architectures, timm:MODEL@EDGE, or a file"


def module_of(name: str, batch: int = 1) -> Any:
    """A network; :class:`EqsatError` where there is none of that name, or none for several inputs."""
    if batch > 1:
        if name not in ZOO:
            raise EqsatError(f"{name} takes one input; batches are for {', '.join(ZOO)}")
        return _real(name, batch)
    if name in NETWORKS:
        return NETWORKS[name]()
    if Path(name).suffix and Path(name).is_file():
        return as_module(name, {})[0]
    from bench.networks.architectures import families

    if name.startswith(TIMM):
        model, _, edge = name.removeprefix(TIMM).partition("@")
        return _exported(*families.sampled(families.of_timm(model, int(edge or 224))))
    if name not in families.ARCHITECTURES:
        raise EqsatError(f"there is no network {name!r}; there are {', '.join(NETWORKS)}, and {OTHERS}")
    return _exported(*families.network_of(name))


def three_readers() -> Any:
    """One tensor that two convolutions and a sum read: TVM's pass copies it twice."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 64, 56, 56), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(np.full((64, 64, 3, 3), 0.01, "float32"))
            y = builder.emit(op.nn.relu(x))
            first, second = (builder.emit(op.nn.conv2d(y, weight, padding=1, dilation=1)) for _ in range(2))
            total = builder.emit(op.sum(y, axis=[2, 3], keepdims=True))
            out = builder.emit(op.add(builder.emit(op.add(first, builder.emit(op.nn.relu(second)))), total))
            result = builder.emit_output(out)
        builder.emit_func_output(result)
    return builder.get()


def _real(name: str, batch: int = 1) -> Any:
    from bench.networks import real

    return real.load(name, "export", batch).module


def _exported(network: Any, sample: Any) -> Any:
    """By way of ``torch.export`` and this package's reader, which knows ops that TVM's does not."""
    import torch

    from bench.networks import real

    with torch.no_grad(), real.quiet():
        return as_module(torch.export.export(network, sample), {})[0]


NETWORKS: Final[dict[str, Callable[[], Any]]] = {
    **SMALL,
    "three_readers": three_readers,
    "resnet50_64": partial(resnet50, image=64),
    **{name: partial(_real, name) for name in ZOO},
}
"""Those that tables are made of if nobody says which."""
