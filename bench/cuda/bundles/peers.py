"""The same networks by torch, cuDNN and JAX on the same card: what our figures stand beside.

In: what a bundle says of a network. Out: rows of seconds, or why there are none. Torch is timed as ours is, by the
device's clock around replays of a CUDA graph; JAX, which has none, by this machine's around as many calls. Nothing here
needs TVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from bench.cuda.bundles.fused import with_fused_calls
from bench.cuda.bundles.items import median

Row = dict[str, Any]

_WARM: Final = 3
"""Runs before a graph is captured."""


def peers_of(said: Mapping[str, Any], turns: int, runs: int, *, on_cpu: bool) -> Iterator[Row]:
    """``said``: the network's name, batch and precision. ``on_cpu``: a rehearsal, without graphs."""
    head = {key: said.get(key) for key in ("network", "batch", "precision")}
    try:
        import torch

        from bench.networks import real
    except ImportError as error:
        yield {"name": "torch", **head, "why": str(error)}
        return
    if head["network"] not in real.MODELS:
        yield {"name": "torch", **head, "why": "it is none of the networks of bench/networks/real.py"}
        return
    if not on_cpu and not torch.cuda.is_available():
        yield {"name": "torch", **head, "why": "torch sees no card"}
        return
    strict = head["precision"] == "float32"
    for name, made in PEERS.items():
        row = {"name": name, **head}
        try:
            with torch.no_grad():
                _allow_tensorfloat32(torch, not strict)
                network, sample = _network(torch, real, head, on_cpu)
                seconds = made(torch, network, sample, turns, runs, on_cpu=on_cpu, is_strict=strict)
            yield {**row, "seconds": median(seconds), "all": seconds}
        except Exception as error:  # on purpose: what a peer meets is its figure
            yield {**row, "why": f"{type(error).__name__}: {error}"[:300]}


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
    "torch max-autotune": compiled,
    "cuDNN fused": fused,
    "JAX jit": by_jax,
}


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
