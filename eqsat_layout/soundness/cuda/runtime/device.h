// What kernels may name: the language's own words, and what the runtime does for them. Included before their text.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cstdint>  // what kernels include, too: they may stand in a namespace
#include <type_traits>

#define __global__ __attribute__((noinline))
#define __device__ __attribute__((always_inline))  // see inline.h
#define __host__
#define __forceinline__ inline
#define __inline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __restrict__
#define __align__(bytes) alignas(bytes)
#define __grid_constant__
#define __builtin_assume(...)  // what it would look at
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

// What Python asks for, where accesses are not watched.
#define SIM_SEEN __attribute__((visibility("default")))
#define SIM_DOOR SIM_SEEN __attribute__((no_sanitize("thread")))

#pragma GCC visibility push(hidden)  // what the runtime defines is called directly
#include "vectors.h"

struct alignas(64) CUtensorMap {
  uint64_t words[16];
};

extern "C" {
extern const uint3 sim_thread_index, sim_block_index, sim_block_extent, sim_grid_extent;
}
#define threadIdx sim_thread_index
#define blockIdx sim_block_index
#define blockDim sim_block_extent
#define gridDim sim_grid_extent
#define warpSize 32

#include "device_half.h"
#include "device_math.h"
#include "device_ptx.h"
#include "device_warp.h"

#include "device_memory.h"  // the last: it takes the place of functions of C
#pragma GCC visibility pop
