// What the parts of the runtime know of a launch: threads, warps, the block that runs, memory, the first fault.
//
// One launch runs at a time in one copy of this library, its blocks one after another, its threads as fibers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "elements.h"

namespace sim {

constexpr int WARP = 32;

struct Index {
  unsigned x, y, z;
};

// An asynchronous copy on its way; it arrives when its thread waits for it, not before.
struct Copy {
  char* to;
  const char* from;
  unsigned bytes, taken;  // the rest is zeros
};

// A plain access to shared memory, kept to count bank conflicts.
struct Touch {
  const void* place;
  unsigned offset, size;
};

// A product of four warps on its way; its operands are read when its thread waits for it, not before.
struct GroupProduct {
  Element type;
  int columns;
  uint64_t a, b;  // descriptors
  bool adds;
  std::vector<float*> sums;
  const void* place;
};

// Phases of a barrier in shared memory that a thread knows to have ended.
struct Phases {
  unsigned barrier;
  uint32_t ended;
};

struct Fiber;

struct Thread {
  Index index;
  int number, warp, lane;
  bool ended;
  bool sums_are_fenced, writes_unfenced;  // for wgmma, which reads around what threads have written
  bool fenced;     // what it did until now, for other blocks
  bool waited;     // for the launches in front of this one
  int waits_at;  // a line, where it waits
  int asked_at;  // for an mbarrier that was not complete; -1: for none
  Fiber* fiber;
  std::vector<Copy> copies;
  std::vector<size_t> groups;  // where each committed group of `copies` ends
  std::vector<Touch> touches;
  std::vector<GroupProduct> products;
  std::vector<size_t> product_groups;
  std::vector<Phases> phases;
};

struct Launch {
  Index block, grid, extent;
  int serial;   // of the block, in the order in which they run
  int threads;  // in a block
  int alive;
  uint32_t epoch;        // counts intervals between barriers of the block, over all blocks
  uint32_t block_start;  // the first of this block
  bool acquired;
  bool overlaps;  // with launches in front of it, which a thread may wait for
  bool waited;    // one did
  uint64_t accesses;  // of the thread since it has its turn
  int votes;          // of the block, for __syncthreads_count and its like
  const void* place;  // return address of the access or instruction at work: where a fault is
};

// Figures of a launch, and its first fault; read by `simulator.py`.
struct Report {
  int faulted;
  const void* place;
  int line;  // 0: ask `place`
  char kind[32];
  char text[512];
  uint64_t shared_accesses, shared_wavefronts;  // of the first block: of warps, and the cycles that they take
  uint64_t barriers, warp_instructions, products;
};

extern Launch launch;
extern Report report;
extern Thread* current;
extern std::vector<Thread> threads;
extern unsigned warp_epochs[32];  // counts intervals between barriers of a warp, within one of the block

// Ends the launch, on whatever stack it is found.
[[noreturn]] void fault(const char* kind, int line, const char* format, ...) __attribute__((format(printf, 3, 4)));
// Ends it too, to begin anew: a piece of memory of `size` bytes needs cells of its own.
[[noreturn]] void restart_with_finer_cells(size_t size);

}  // namespace sim
