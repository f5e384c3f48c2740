"""A simulator of generated CUDA C++: the kernels' text, as TVM writes it, run and watched on the CPU.

    sim = Simulator(source)
    report = sim.launch("main_kernel", [out, x, w], grid=(49, 2), block=(32, 2), shared_bytes=23040, order=1)

In: the text of one or more kernels; NumPy arrays, which the launch changes in place, and numbers. Out: what a card
would compute, and figures; or :class:`KernelFault`, which names the thread, the line and what is wrong. It needs g++
or clang++ and no card, no driver and no CUDA package.
"""

from eqsat_layout.soundness.cuda.faults import KernelFault, SourceError
from eqsat_layout.soundness.cuda.simulator import LaunchReport, Simulator

__all__ = ["KernelFault", "LaunchReport", "Simulator", "SourceError"]
