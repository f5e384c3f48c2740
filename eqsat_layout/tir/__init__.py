"""All that looks into a PrimFunc: block signatures, flow, rewriting for new formats, index maps from and to TVM.

Imports ``maps``; knows nothing of Relax graphs.
"""
