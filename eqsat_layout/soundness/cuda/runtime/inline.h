// Functions of kernels are inlined, all of them: the compiler watches assignments, but not what a call takes from memory
// or puts there when it passes or returns a whole struct, as half and the vectors are.
#pragma once

#define SIM_INLINE inline __attribute__((always_inline))
