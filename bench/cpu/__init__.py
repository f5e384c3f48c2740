"""Networks, ops and kernels on CPUs, beside other engines: measured."""
