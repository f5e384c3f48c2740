#include "memory.h"

#include <sys/mman.h>

#include <cstring>

#include "banks.h"
#include "fibers.h"
#include "warps.h"

namespace sim {
namespace {

constexpr int SLOT = 36;
constexpr uint64_t PAGE = 4096, MOST_SHARED = 227 << 10;

// A cell: the interval between barriers, the one between barriers of the warp, flags, the thread. 0: nobody yet.
using Cell = uint64_t;
constexpr Cell MANY_LANES = 1 << 10, MANY_WARPS = 1 << 11, MANY_BLOCKS = 1 << 12, ATOMIC = 1 << 13, PENDING = 1 << 14;
constexpr Cell FLAGS = MANY_LANES | MANY_WARPS | MANY_BLOCKS | ATOMIC | PENDING;

uint32_t epoch_of(Cell cell) { return cell >> 32; }
unsigned warp_epoch_of(Cell cell) { return cell >> 16 & 0xffff; }
int thread_of(Cell cell) { return cell & 1023; }

struct Cells {
  Cell writer, reader;
};

struct Slot {
  size_t size;
  int granule;
  bool written;
  Cells* cells;
  size_t cells_bytes;
};

struct Static {
  size_t begin, end;
};

char* base;
size_t span;
std::vector<Slot> slots;  // the first is shared memory
std::vector<Static> statics;
size_t dynamic_end;

Cells* cells_for(size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<Cells*>(pages);
}

const char* where(int slot) { return slot ? "global" : "shared"; }

const char* verb(Access access) {
  return access == Access::read ? "reads" : access == Access::write ? "writes" : "changes atomically";
}

[[noreturn]] void race(int slot, size_t at, Access access, Cell other, const char* did) {
  if (epoch_of(other) < launch.block_start)
    fault("race", 0, "it %s global memory, byte %zu of an argument, that another block %s", verb(access), at, did);
  const Thread& first = threads[thread_of(other)];
  fault("race", 0, "it %s %s memory, byte %zu, that thread (%u, %u, %u) %s, with no barrier between", verb(access),
        where(slot), at, first.index.x, first.index.y, first.index.z, did);
}

// Whether what `cell` stands for happened before what `thread` does now, or is its own.
bool is_before(Cell cell, const Thread& thread) {
  if (epoch_of(cell) != launch.epoch) return epoch_of(cell) >= launch.block_start || is_released(epoch_of(cell));
  int other = thread_of(cell);
  if (other == thread.number) return true;
  return other / WARP == thread.warp && warp_epoch_of(cell) < warp_epoch(thread.warp);
}

Cell now(const Thread& thread) {
  return static_cast<Cell>(launch.epoch) << 32 | static_cast<Cell>(warp_epoch(thread.warp)) << 16 | thread.number;
}

void check_writer(Thread& thread, int slot, size_t at, Access access, Cell writer) {
  if (writer & PENDING)
    fault("async", 0, "it %s shared memory, byte %zu, before its asynchronous copy is waited for", verb(access), at);
  if (access == Access::atomic && writer & ATOMIC) {
    if (epoch_of(writer) < launch.block_start) acquire();
    return;
  }
  if (writer && !is_before(writer, thread)) race(slot, at, access, writer, "wrote");
}

void check_readers(Thread& thread, int slot, size_t at, Access access, Cell reader) {
  if (!reader) return;
  bool others = reader & MANY_BLOCKS && !launch.acquired;
  if (epoch_of(reader) == launch.epoch)
    others |= (reader & MANY_WARPS) != 0 || ((reader & MANY_LANES) && warp_epoch_of(reader) == warp_epoch(thread.warp));
  if (others || !is_before(reader, thread)) race(slot, at, access, reader, "read");
}

Cell with_reader(Cell reader, Cell mine) {
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

// The slot of an address, or -1 for the thread's own memory.
int slot_of(const void* address, size_t size, Access access) {
  auto offset = static_cast<size_t>(static_cast<const char*>(address) - base);
  if (offset < span) {
    int slot = static_cast<int>(offset >> SLOT);
    size_t at = offset & ((size_t{1} << SLOT) - 1);
    if (at + size <= slots[slot].size) return slot;
    if (at > size_t{1} << (SLOT - 1))
      fault("range", 0, "it %s %zu bytes, %zu before the beginning of %s", verb(access), size,
            (size_t{1} << SLOT) - at, slot + 1 < static_cast<int>(slots.size()) ? "an argument" : "what it was given");
    fault("range", 0, "it %s %zu bytes at byte %zu of %s memory of %zu bytes", verb(access), size, at, where(slot),
          slots[slot].size);
  }
  if (!in_fiber() || on_stack(address, size)) return -1;
  fault("range", 0, "it %s %zu bytes at an address in no argument, %p", verb(access), size, address);
}

void check_allocated(size_t at, size_t size, Access access) {
  if (at + size <= dynamic_end) return;
  for (const Static& one : statics)
    if (at >= one.begin && at + size <= one.end) return;
  fault("range", 0, "it %s %zu bytes at byte %zu of shared memory, outside of what the kernel declares", verb(access),
        size, at);
}

}  // namespace

char* shared_memory() { return base; }
size_t shared_size() { return slots[0].size; }

bool is_shared(const void* address) {
  return static_cast<size_t>(static_cast<const char*>(address) - base) < size_t{1} << SLOT;
}

void open_memory(int arguments) {
  span = size_t(arguments + 1) << SLOT;
  void* pages = mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  base = pages == MAP_FAILED ? nullptr : static_cast<char*>(pages);
  slots.assign(arguments + 1, Slot{});
  statics.clear();
  add_argument(-1, 2 * MOST_SHARED, 0);
}

void* add_argument(int number, size_t size, int granule) {
  Slot& slot = slots[number + 1];
  char* memory = base + (size_t(number + 1) << SLOT);
  size_t bytes = (((size >> granule) + 1) * sizeof(Cells) + PAGE - 1) & ~(PAGE - 1);
  slot = {size, granule, false, cells_for(bytes), bytes};
  if (!slot.cells || mprotect(memory, (size + PAGE) & ~(PAGE - 1), PROT_READ | PROT_WRITE)) return nullptr;
  return memory;
}

bool was_written(int number) { return slots[number + 1].written; }

void close_memory() {
  for (Slot& slot : slots)
    if (slot.cells) munmap(slot.cells, slot.cells_bytes);
  if (base) munmap(base, span);
  base = nullptr;
}

void size_shared(size_t bytes) { dynamic_end = bytes; }

char* static_shared(int id, size_t bytes, size_t alignment) {
  if (id >= static_cast<int>(statics.size())) statics.resize(id + 1, Static{0, 0});
  Static& one = statics[id];
  if (!one.end) {
    size_t from = dynamic_end;
    for (const Static& other : statics) from = other.end > from ? other.end : from;
    one.begin = (from + 16 + alignment - 1) / alignment * alignment;  // a gap shows what leaves an array
    one.end = one.begin + bytes;
    if (one.end > slots[0].size) fault("range", 0, "more than %zu bytes of shared memory", size_t{MOST_SHARED});
  }
  return base + one.begin;
}

void block_starts() {
  size_t end = dynamic_end;
  for (const Static& one : statics) end = one.end > end ? one.end : end;
  memset(base, 0xff, end);  // NaN in all floating-point types
}

void touch(Thread& thread, const void* address, size_t size, Access access, bool vector) {
  int slot = slot_of(address, size, access);
  if (slot < 0) return;
  Slot& memory = slots[slot];
  if (vector && reinterpret_cast<uintptr_t>(address) % size)
    fault("alignment", 0, "it %s %zu bytes of %s memory at byte %zu, which %zu does not divide", verb(access), size,
          where(slot), static_cast<size_t>(static_cast<const char*>(address) - base) & ((size_t{1} << SLOT) - 1), size);
  size_t at = static_cast<size_t>(static_cast<const char*>(address) - base) & ((size_t{1} << SLOT) - 1);
  if (!slot) {
    check_allocated(at, size, access);
    if (!launch.serial && access != Access::atomic) count_touch(thread, at, size);
  }
  Cell mine = now(thread);
  memory.written |= access != Access::read;
  uint32_t oldest = slot ? 0 : launch.block_start;  // shared memory is new in each block
  Cells* last = memory.cells + ((at + size - 1) >> memory.granule);
  for (Cells* cells = memory.cells + (at >> memory.granule); cells <= last; cells++) {
    size_t byte = static_cast<size_t>(cells - memory.cells) << memory.granule;
    if (epoch_of(cells->writer) < oldest) cells->writer = 0;
    if (epoch_of(cells->reader) < oldest) cells->reader = 0;
    if ((cells->writer & ~(FLAGS & ~PENDING)) != mine) check_writer(thread, slot, byte, access, cells->writer);
    if (access == Access::read) {
      if (!slot && !cells->writer)
        fault("unwritten", 0, "it reads shared memory, byte %zu, that nobody has written", byte);
      if (cells->reader != mine) cells->reader = with_reader(cells->reader, mine);
    } else {
      if (cells->reader != mine) check_readers(thread, slot, byte, access, cells->reader);
      cells->writer = mine | (access == Access::atomic ? ATOMIC : 0);
    }
  }
  if (access == Access::atomic) release();
}

void touch_pending(Thread& thread, const void* address, size_t size) {
  touch(thread, address, size, Access::write);
  size_t at = static_cast<size_t>(static_cast<const char*>(address) - base);
  for (size_t i = at; i < at + size; i++) slots[0].cells[i].writer |= PENDING;
}

void settle(Thread& thread, const void* address, size_t size) {
  size_t at = static_cast<size_t>(static_cast<const char*>(address) - base);
  for (size_t i = at; i < at + size; i++) slots[0].cells[i].writer = now(thread);
}

}  // namespace sim

#define PLACE sim::launch.place = __builtin_return_address(0)
#define ACCESS(size)                                                                                            \
  extern "C" void __tsan_read##size(void* p) { PLACE; sim::touch(*sim::current, p, size, sim::Access::read); }   \
  extern "C" void __tsan_write##size(void* p) { PLACE; sim::touch(*sim::current, p, size, sim::Access::write); } \
  extern "C" void __tsan_unaligned_read##size(void* p) {                                                         \
    PLACE;                                                                                                       \
    sim::touch(*sim::current, p, size, sim::Access::read, false);                                                \
  }                                                                                                              \
  extern "C" void __tsan_unaligned_write##size(void* p) {                                                        \
    PLACE;                                                                                                       \
    sim::touch(*sim::current, p, size, sim::Access::write, false);                                               \
  }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)

extern "C" void __tsan_read_range(void* p, size_t size) {
  PLACE;
  sim::touch(*sim::current, p, size, sim::Access::read, false);
}
extern "C" void __tsan_write_range(void* p, size_t size) {
  PLACE;
  sim::touch(*sim::current, p, size, sim::Access::write, false);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
