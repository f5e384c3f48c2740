"""Layers that both frontends lack, built of Relax ops and kernels."""
