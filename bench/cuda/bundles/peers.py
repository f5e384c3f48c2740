"""The same networks by torch, cuDNN and JAX on the same card: what our figures stand beside.

In: what a bundle says of a network. Out: a row of a peer's seconds, or why there are none. Torch is timed as ours is,
by the device's clock around replays of a CUDA graph; JAX, which has none, by this machine's around as many calls.
Nothing here needs TVM.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.cuda.bundles.fused import with_fused_calls
from bench.cuda.bundles.items import median

Row = dict[str, Any]

_WARM: Final = 3
"""Runs before a graph is captured."""


def peer_of(name: str, said: Mapping[str, Any], turns: int, runs: int, *, on_cpu: bool) -> Row:
    """``name``: of :data:`PEERS`. ``said``: the network's name, batch and precision. ``on_cpu``: a rehearsal, without
    graphs. ``why``: it is not there; ``fails``: what it met, maybe a fault of the card's, which spoils a process."""
    row = {"name": name, **{key: said.get(key) for key in ("network", "batch", "precision")}}
    try:
        import torch

        from bench.networks import real
    except ImportError as error:
        return {**row, "why": str(error)}
    if row["network"] not in real.MODELS:
        return {**row, "why": "it is none of the networks of bench/networks/real.py"}
    if not on_cpu and not torch.cuda.is_available():
        return {**row, "why": "torch sees no card"}
    strict = row["precision"] == "float32"
    try:
        with torch.no_grad():
            _allow_tensorfloat32(torch, not strict)
            network, sample = _network(torch, real, row, on_cpu)
            seconds = PEERS[name](torch, network, sample, turns, runs, on_cpu=on_cpu, is_strict=strict)
    except (ImportError, NotImplementedError) as error:
        return {**row, "why": str(error)}
    except Exception as error:  # on purpose: what a peer meets is its figure
        return {**row, "fails": f"{type(error).__name__}: {error}"[:300]}
    return {**row, "seconds": median(seconds), "all": seconds}


def eager(
    torch: Any, network: Any, sample: Any, turns: int, runs: int, *, on_cpu: bool, is_strict: bool
) -> list[float]:
    """Channels last, batch norms folded where torch can trace the network, captured in a CUDA graph."""
    return _in_a_graph(torch, _folded(network), sample, turns, runs, on_cpu)


def fused(
    torch: Any, network: Any, sample: Any, turns: int, runs: int, *, on_cpu: bool, is_strict: bool
) -> list[float]:
    """The same with cuDNN's fused calls."""
    folded = _folded(network)
    if folded is network or not with_fused_calls(folded):
        raise NotImplementedError("no convolution with a bias and a ReLU after it is found")
    if on_cpu:
        raise NotImplementedError("cuDNN's calls run on a card only")
    return _in_a_graph(torch, folded, sample, turns, runs, on_cpu)


def by_jax(
    torch: Any, network: Any, sample: Any, turns: int, runs: int, *, on_cpu: bool, is_strict: bool
) -> list[float]:
    """``jax.jit`` of what ``torch.export`` wrote down."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need the card's memory, too
    import jax

    from bench.cuda.bundles.jax_networks import function_of

    if not on_cpu and jax.default_backend() != "gpu":
        raise NotImplementedError("JAX sees no card")
    clock = time.process_time if on_cpu else time.perf_counter
    found = []
    with jax.default_matmul_precision("highest" if is_strict else "tensorfloat32"):
        function, arguments = function_of(torch, network, sample)
        fast = jax.jit(function)
        jax.block_until_ready(fast(*arguments))
        for _ in range(turns):
            before = clock()
            for _ in range(runs):
                results = fast(*arguments)
            jax.block_until_ready(results)
            found.append((clock() - before) / runs)
    return found


def _in_a_graph(torch: Any, network: Any, sample: Any, turns: int, runs: int, on_cpu: bool) -> list[float]:
    if on_cpu:
        return _timed(torch, lambda: network(*sample), turns, runs, on_cpu)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM):
            network(*sample)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        network(*sample)
    return _timed(torch, graph.replay, turns, runs, on_cpu)


def compiled(
    torch: Any, network: Any, sample: Any, turns: int, runs: int, *, on_cpu: bool, is_strict: bool
) -> list[float]:
    """``torch.compile(mode="max-autotune")``, frozen: it captures graphs itself."""
    import torch._inductor.config as inductor

    inductor.freezing = True
    torch._dynamo.reset()
    fast = torch.compile(network, mode="max-autotune")
    for _ in range(_WARM):
        fast(*sample)
    return _timed(torch, lambda: fast(*sample), turns, runs, on_cpu)


PEERS: Final[dict[str, Callable[..., list[float]]]] = {
    "torch eager": eager,
    "cuDNN fused": fused,
    "JAX jit": by_jax,
    "torch max-autotune": compiled,
}
"""The one that may take minutes comes last."""


def _timed(torch: Any, run: Callable[[], Any], turns: int, runs: int, on_cpu: bool) -> list[float]:
    found = []
    for _ in range(turns):
        if on_cpu:
            before = time.process_time()
            run()
            found.append(time.process_time() - before)
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(runs):
            run()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e-3 / runs)
    return found


def _network(torch: Any, real: Any, said: Mapping[str, Any], on_cpu: bool) -> tuple[Any, Any]:
    """The network and a sample where they are to run, in the precision."""
    network, sample = real.network_of(said["network"], said["batch"])
    precision = str(said["precision"])
    dtype = torch.float32 if precision == "tensorfloat32" else getattr(torch, precision)
    device = "cpu" if on_cpu else "cuda"
    network = network.to(device=device, dtype=dtype, memory_format=torch.channels_last)

    def placed(one: Any) -> Any:
        one = one.to(device=device, dtype=dtype if one.is_floating_point() else one.dtype)
        return one.to(memory_format=torch.channels_last) if one.ndim == 4 else one

    return network, tuple(placed(one) for one in sample)


def _folded(network: Any) -> Any:
    try:
        from torch.fx.experimental.optimization import fuse

        return fuse(network)
    except Exception:  # on purpose: it has branches, or what torch's tracer knows no way with
        return network


def _allow_tensorfloat32(torch: Any, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
