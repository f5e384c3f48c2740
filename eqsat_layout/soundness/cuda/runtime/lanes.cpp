// Shuffles, votes and reductions between the lanes of a warp; barriers.
#include "device_warp.h"

#include <algorithm>

#include "warps.h"

#define PLACE launch.place = __builtin_return_address(0)

namespace sim {
namespace {

struct Shuffle {
  uint64_t value;
  int from;
  uint64_t result;
};

struct Ballot {
  Vote vote;
  int predicate;
  unsigned result;
};

struct Reduction {
  Sum sum;
  unsigned value, result;
};

struct Match {
  uint64_t value;
  unsigned result;
};

void order(Thread* const* lanes, void* const*, unsigned mask) {
  order_warp(lanes[__builtin_ctz(mask)]->warp, mask);
}

// What comes from a lane that does not take part is undefined: all ones, NaN.
void exchange(Thread* const*, void* const* operands, unsigned mask) {
  for (int lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto& one = *static_cast<Shuffle*>(operands[lane]);
    bool known = one.from >= 0 && one.from < WARP && (mask >> one.from & 1);
    one.result = known ? static_cast<Shuffle*>(operands[one.from])->value : ~uint64_t{0};
  }
}

void count_votes(Thread* const*, void* const* operands, unsigned mask) {
  unsigned ballot = 0;
  for (int lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1 && static_cast<Ballot*>(operands[lane])->predicate) ballot |= 1u << lane;
  for (int lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto& one = *static_cast<Ballot*>(operands[lane]);
    one.result = one.vote == Vote::ballot ? ballot
                 : one.vote == Vote::all  ? ballot == mask
                 : one.vote == Vote::any  ? ballot != 0
                                          : ballot == mask || !ballot;
  }
}

unsigned added(Sum sum, unsigned a, unsigned b) {
  int x = static_cast<int>(a), y = static_cast<int>(b);
  switch (sum) {
    case Sum::add: return a + b;
    case Sum::min: return std::min(a, b);
    case Sum::max: return std::max(a, b);
    case Sum::smin: return static_cast<unsigned>(std::min(x, y));
    case Sum::smax: return static_cast<unsigned>(std::max(x, y));
    case Sum::all_bits: return a & b;
    case Sum::any_bits: return a | b;
    default: return a ^ b;
  }
}

void reduce_all(Thread* const*, void* const* operands, unsigned mask) {
  bool first = true;
  unsigned total = 0;
  for (int lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto& one = *static_cast<Reduction*>(operands[lane]);
    total = first ? one.value : added(one.sum, total, one.value);
    first = false;
  }
  for (int lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) static_cast<Reduction*>(operands[lane])->result = total;
}

void who_comes(Thread* const*, void* const* operands, unsigned mask) {
  for (int lane = 0; lane < WARP; lane++)
    if (mask >> lane & 1) *static_cast<unsigned*>(operands[lane]) = mask;
}

void find_equal(Thread* const*, void* const* operands, unsigned mask) {
  for (int lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto& one = *static_cast<Match*>(operands[lane]);
    one.result = 0;
    for (int other = 0; other < WARP; other++)
      if (mask >> other & 1 && static_cast<Match*>(operands[other])->value == one.value) one.result |= 1u << other;
  }
}

int votes;

}  // namespace

int lane() { return current->lane; }

void barrier_at(int line) {
  PLACE;
  barrier(line);
}

// The votes stand until all have read them: a second barrier, which `__syncthreads_or` has inside too.
int barrier_vote(int line, int what, int predicate) {
  PLACE;
  votes += predicate != 0;
  barrier(line);
  int count = votes;
  barrier(line);
  votes = 0;
  barrier(line);
  return what == 0 ? count : what == 1 ? count == launch.threads : count > 0;
}

void sync_warp(int line, unsigned mask) {
  PLACE;
  meet(line, "__syncwarp", mask, nullptr, order);
}

uint64_t shuffle(int line, unsigned mask, uint64_t value, int from) {
  PLACE;
  Shuffle one{value, from, 0};
  meet(line, "a shuffle", mask, &one, exchange);
  return one.result;
}

unsigned vote(int line, unsigned mask, Vote what, int predicate) {
  PLACE;
  Ballot one{what, predicate, 0};
  meet(line, "a vote", mask, &one, count_votes);
  return one.result;
}

unsigned reduce(int line, unsigned mask, Sum sum, unsigned value) {
  PLACE;
  Reduction one{sum, value, 0};
  meet(line, "a reduction", mask, &one, reduce_all);
  return one.result;
}

unsigned active_mask(int line) {
  PLACE;
  unsigned mask = 0;
  meet(line, "__activemask", 0, &mask, who_comes, true);
  return mask;
}

unsigned match_any(int line, unsigned mask, uint64_t value) {
  PLACE;
  Match one{value, 0};
  meet(line, "__match_any_sync", mask, &one, find_equal);
  return one.result;
}

}  // namespace sim
