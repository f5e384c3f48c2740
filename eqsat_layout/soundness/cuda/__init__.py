"""A simulator of generated CUDA C++: the kernels' text, as TVM writes it, run and watched on the CPU.

    sim = Simulator(source)
    report = sim.launch("main_kernel", [out, x, w], grid=(49, 2), block=(32, 2), shared_bytes=23040, order=1)

In: the text of one or more kernels; NumPy arrays, which the launch changes in place, and numbers. Out: what a card
would compute, and figures; or :class:`KernelFault`, which names the thread, the line and what is wrong. It needs g++
or clang++ and no card, no driver and no CUDA package.

**How it works.** ``source`` replaces inline PTX and declarations of shared memory in the text; the rest is C++ beside
``runtime/device.h``, and an unknown word is an error of the compiler with its line. The threads of a block are fibers
that give up their turn at barriers and at instructions of a warp; blocks run one after another. The compiler calls the
runtime at each access to memory (``-fsanitize=thread``, without its library), and cells beside the memory say who
wrote and read it in which interval between barriers: so races are found in any order, not by luck. ``order`` shuffles
blocks and threads all the same, for results that rest on it.

**What it finds** (``KernelFault.kind``): *race* on shared or global memory, between threads, warps and blocks;
*barrier* that some threads miss; *convergence*: an instruction of a warp that some lanes miss; *async*: copies used or
overwritten before they are waited for, which arrive as late as they may, those by tensor maps too (TMA), with phases
and byte counts of the barriers that count them (mbarrier); *range* and *alignment* of accesses; *unwritten* shared
memory that is read; *trap*; *limit*. A launch that overlaps with those before it (programmatic dependent launch) may
touch what they write only when it has waited. Bank conflicts are counted. What is not known to the runtime (wmma, named
barriers, bulk copies without a tensor map) is a :class:`SourceError` by name.

**What it trusts.** Only barriers order memory: ``__syncwarp`` within a warp, but not shuffles, votes or ``mma``, of
which CUDA promises no order; an mbarrier orders the copies that it counts, and no threads. Between blocks: a fence and
an atomic access by one, then an atomic access to the same by the other. Sums of ``mma`` are exact and rounded once,
functions like ``__expf`` are those of C: a card is less exact. Fragments of ``mma`` and ``ldmatrix`` follow the PTX ISA
(9.7.14.5).
"""

from eqsat_layout.soundness.cuda.faults import KernelFault, SourceError
from eqsat_layout.soundness.cuda.simulator import LaunchReport, Simulator
from eqsat_layout.soundness.cuda.tensor_maps import MappedArray

__all__ = ["KernelFault", "LaunchReport", "MappedArray", "Simulator", "SourceError"]
