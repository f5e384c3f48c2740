// What SIM_INLINE PTX becomes: `instructions.py` writes calls of these. Shared addresses are offsets, as on a card.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>

#include "elements.h"
#include "inline.h"

namespace sim {

enum class Result { f32, f16, s32, s32_saturated };

// Fragments by registers: `rows` of A's registers, two of B's or fewer (PTX ISA, "Matrix Fragments for mma").
void mma(int line, int depth, Element a_type, Element b_type, Result, uint32_t* d, const uint32_t* a, const uint32_t* b,
         const uint32_t* c);
void ldmatrix(int line, int count, bool transposed, uint32_t* registers, unsigned row);
void stmatrix(int line, int count, bool transposed, const uint32_t* registers, unsigned row);

void cp_async(int line, unsigned to, const void* from, unsigned bytes, unsigned taken, bool around_l1);
void cp_async_commit();
void cp_async_wait(unsigned pending);
void cp_async_wait_all();

// `sums`: the registers; `a` and `b`: descriptors of matrices in shared memory.
void wgmma(int line, Element type, int columns, float* const* sums, uint64_t a, uint64_t b, bool adds);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned pending);
void fence_proxy();
void fence_barriers();

// `map`: of the driver's kind, `place`: of the box, the fastest axis first; `barrier` counts what comes.
void bulk_tensor(int line, unsigned to, const void* map, const std::initializer_list<int>& place, unsigned barrier);
void mbarrier_init(int line, unsigned at, unsigned count);
void mbarrier_arrive(int line, unsigned at, unsigned expected_bytes);
bool mbarrier_try_wait(int line, unsigned at, unsigned parity);

void wait_for_launches();

void load_shared(int line, void* to, unsigned from, size_t size);
void store_shared(int line, unsigned to, const void* from, size_t size);
void load_global(int line, void* to, const void* from, size_t size);
void store_global(int line, void* to, const void* from, size_t size);

// Registers are untyped bits.
template <class To, class From> SIM_INLINE To as(From value) {
  To same{};
  memcpy(&same, &value, sizeof same < sizeof value ? sizeof same : sizeof value);
  return same;
}
template <class To, class From> SIM_INLINE void put(To& to, From value) {
  static_assert(sizeof(To) == sizeof(From), "a register of another size");
  memcpy(&to, &value, sizeof to);
}

// The nearest tf32, ties away from zero (PTX ISA, cvt.rna.tf32.f32).
SIM_INLINE uint32_t tf32_of(float value) {
  uint32_t bits = as<uint32_t>(value);
  return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000;
}

}  // namespace sim
