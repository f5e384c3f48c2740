// Barriers, shuffles and votes, as kernels name them; each says its line.
#pragma once
#include <stdint.h>
#include <string.h>

#include "inline.h"

namespace sim {

enum class Vote { ballot, all, any, uniform };
enum class Sum { add, min, max, smin, smax, all_bits, any_bits, odd_bits };

void barrier_at(int line);
int barrier_vote(int line, int what, int predicate);
void sync_warp(int line, unsigned mask);
int lane();
uint64_t shuffle(int line, unsigned mask, uint64_t value, int from);
unsigned vote(int line, unsigned mask, Vote, int predicate);
unsigned reduce(int line, unsigned mask, Sum, unsigned value);
unsigned active_mask(int line);
unsigned match_any(int line, unsigned mask, uint64_t value);

template <class T> SIM_INLINE T shuffled(int line, unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= 8, "a shuffle of at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = shuffle(line, mask, bits, from);
  memcpy(&value, &bits, sizeof value);
  return value;
}

// The lanes between which a shuffle goes are `width` lanes; who would look beyond them looks at itself (PTX ISA, shfl).
SIM_INLINE int within(int from, int width) { return (from ^ lane()) & -width ? lane() : from; }
SIM_INLINE int from_index(int index, int width = 32) { return (lane() & -width) | (index & (width - 1)); }
SIM_INLINE int from_up(unsigned delta, int width = 32) { return within(lane() - static_cast<int>(delta), width); }
SIM_INLINE int from_down(unsigned delta, int width = 32) { return within(lane() + static_cast<int>(delta), width); }
SIM_INLINE int from_xor(int mask, int width = 32) {
  int from = lane() ^ mask;
  return from > (lane() | (width - 1)) ? lane() : from;
}

}  // namespace sim

#define __syncthreads() sim::barrier_at(__LINE__)
#define __syncthreads_count(predicate) sim::barrier_vote(__LINE__, 0, predicate)
#define __syncthreads_and(predicate) sim::barrier_vote(__LINE__, 1, predicate)
#define __syncthreads_or(predicate) sim::barrier_vote(__LINE__, 2, predicate)
SIM_INLINE unsigned sim_mask(unsigned mask = 0xffffffffu) { return mask; }
#define __syncwarp(...) sim::sync_warp(__LINE__, sim_mask(__VA_ARGS__))
#define __shfl_sync(mask, value, ...) sim::shuffled(__LINE__, mask, value, sim::from_index(__VA_ARGS__))
#define __shfl_up_sync(mask, value, ...) sim::shuffled(__LINE__, mask, value, sim::from_up(__VA_ARGS__))
#define __shfl_down_sync(mask, value, ...) sim::shuffled(__LINE__, mask, value, sim::from_down(__VA_ARGS__))
#define __shfl_xor_sync(mask, value, ...) sim::shuffled(__LINE__, mask, value, sim::from_xor(__VA_ARGS__))
#define __ballot_sync(mask, predicate) sim::vote(__LINE__, mask, sim::Vote::ballot, (predicate) != 0)
#define __all_sync(mask, predicate) static_cast<int>(sim::vote(__LINE__, mask, sim::Vote::all, (predicate) != 0))
#define __any_sync(mask, predicate) static_cast<int>(sim::vote(__LINE__, mask, sim::Vote::any, (predicate) != 0))
#define __activemask() sim::active_mask(__LINE__)
#define __match_any_sync(mask, value) sim::match_any(__LINE__, mask, static_cast<uint64_t>(value))

#define SIM_REDUCE(name, sum, type)                                                     \
  SIM_INLINE type sim_reduce_##name(int line, unsigned mask, type value) {                  \
    return static_cast<type>(sim::reduce(line, mask, sim::Sum::sum, static_cast<unsigned>(value))); \
  }
SIM_REDUCE(add, add, int) SIM_REDUCE(add, add, unsigned) SIM_REDUCE(min, smin, int) SIM_REDUCE(min, min, unsigned)
SIM_REDUCE(max, smax, int) SIM_REDUCE(max, max, unsigned) SIM_REDUCE(and, all_bits, unsigned)
SIM_REDUCE(or, any_bits, unsigned) SIM_REDUCE(xor, odd_bits, unsigned)
#undef SIM_REDUCE
#define __reduce_add_sync(mask, value) sim_reduce_add(__LINE__, mask, value)
#define __reduce_min_sync(mask, value) sim_reduce_min(__LINE__, mask, value)
#define __reduce_max_sync(mask, value) sim_reduce_max(__LINE__, mask, value)
#define __reduce_and_sync(mask, value) sim_reduce_and(__LINE__, mask, value)
#define __reduce_or_sync(mask, value) sim_reduce_or(__LINE__, mask, value)
#define __reduce_xor_sync(mask, value) sim_reduce_xor(__LINE__, mask, value)
