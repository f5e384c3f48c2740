// What is known of a few bytes of memory: who wrote them last and who read them since, and whether that was before.
//
// Two accesses, one of them a write, are a race unless a barrier of the block lies between them, or one of the warp
// where both are of one warp. Intervals between barriers are counted over all blocks, so a number tells
// the block as well.
#pragma once
#include "state.h"
#include "warps.h"

namespace sim {

// The interval of the block, that of the warp, flags, the thread. 0: nobody yet.
using Cell = uint64_t;

struct Cells {
  Cell writer, reader;
};

constexpr Cell MANY_LANES = 1 << 10, MANY_WARPS = 1 << 11, MANY_BLOCKS = 1 << 12;  // have read
constexpr Cell ATOMIC = 1 << 13, PENDING = 1 << 14;                               // a write
constexpr Cell BULK = 1 << 15;  // one by a bulk copy, whose number stands in place of the warp's interval

inline uint32_t epoch_of(Cell cell) { return cell >> 32; }
inline unsigned warp_epoch_of(Cell cell) { return cell >> 16 & 0xffff; }
inline int thread_of(Cell cell) { return cell & 1023; }

inline Cell now(const Thread& thread) {
  return static_cast<Cell>(launch.epoch) << 32 | static_cast<Cell>(warp_epochs[thread.warp]) << 16 |
         static_cast<Cell>(thread.number);
}

// Whether what `cell` stands for happened before what `thread` does now, or is its own.
inline bool is_before(Cell cell, const Thread& thread) {
  if (epoch_of(cell) != launch.epoch) return epoch_of(cell) >= launch.block_start || is_released(epoch_of(cell));
  int other = thread_of(cell);
  if (other == thread.number) return true;
  return other / WARP == thread.warp && warp_epoch_of(cell) < warp_epochs[thread.warp];
}

// Whether all who have read since are before what `thread` does now.
inline bool readers_are_before(Cell reader, const Thread& thread) {
  if (reader & MANY_BLOCKS && !launch.acquired) return false;
  if (epoch_of(reader) == launch.epoch &&
      (reader & MANY_WARPS || (reader & MANY_LANES && warp_epoch_of(reader) == warp_epochs[thread.warp])))
    return false;
  return is_before(reader, thread);
}

// Those who have read, and now `mine` too.
inline Cell with_reader(Cell reader, Cell mine) {
  if (!reader) return mine;
  Cell flags = reader & MANY_BLOCKS;
  if (epoch_of(reader) < launch.block_start) {
    flags |= MANY_BLOCKS;
  } else if (epoch_of(reader) == launch.epoch) {
    flags |= reader & MANY_WARPS;
    if (thread_of(reader) / WARP != thread_of(mine) / WARP)
      flags |= MANY_WARPS;
    else if (warp_epoch_of(reader) == warp_epoch_of(mine))
      flags |= (reader & MANY_LANES) | (thread_of(reader) != thread_of(mine) ? MANY_LANES : 0);
  }
  return mine | flags;
}

}  // namespace sim
