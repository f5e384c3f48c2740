"""Sorts, and the first elements of sorted rows, as kernels.

TVM calls a library that sorts whole rows by a function for two elements. Here a kernel orders words of 64 bits: an
element's key, then where it comes from. So equal elements keep their order, all words differ, and NaN is the largest
number. Imports ``tir`` and what is below it.
"""
