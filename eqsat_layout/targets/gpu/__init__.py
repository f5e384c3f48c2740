"""What targets that launch threads from a host share.

In: nothing. Out: kernels as threads that each compute a tile (:mod:`.kernels`), what one kernel is made of
(:mod:`.join`), and what the host does, as data (:mod:`.host`).
"""
