// Vectors of up to four numbers, with CUDA's names and alignments.
#pragma once
#include <stdint.h>

#include "inline.h"

#define SIM_VECTORS(name, type, two, four)                                                   \
  struct name##1 { type x; };                                                                \
  struct alignas(two) name##2 { type x, y; };                                                \
  struct name##3 { type x, y, z; };                                                          \
  struct alignas(four) name##4 { type x, y, z, w; };                                         \
  SIM_INLINE name##1 make_##name##1(type x) { return {x}; }                                      \
  SIM_INLINE name##2 make_##name##2(type x, type y) { return {x, y}; }                           \
  SIM_INLINE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                \
  SIM_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

SIM_VECTORS(char, signed char, 2, 4)
SIM_VECTORS(uchar, unsigned char, 2, 4)
SIM_VECTORS(short, short, 4, 8)
SIM_VECTORS(ushort, unsigned short, 4, 8)
SIM_VECTORS(int, int, 8, 16)
SIM_VECTORS(uint, unsigned, 8, 16)
SIM_VECTORS(long, long, 16, 16)
SIM_VECTORS(ulong, unsigned long, 16, 16)
SIM_VECTORS(longlong, long long, 16, 16)
SIM_VECTORS(ulonglong, unsigned long long, 16, 16)
SIM_VECTORS(float, float, 8, 16)
SIM_VECTORS(double, double, 16, 16)
#undef SIM_VECTORS

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
