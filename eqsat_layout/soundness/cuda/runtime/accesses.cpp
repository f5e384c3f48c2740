#include "accesses.h"

#include "banks.h"
#include "bulk.h"
#include "fibers.h"

namespace sim {
namespace {

const char* verb(Access access) {
  return access == Access::read ? "reads" : access == Access::write ? "writes" : "changes atomically";
}

const char* name(size_t slot) { return slot ? "global" : "shared"; }

[[noreturn]] void race(size_t slot, size_t at, Access access, Cell other, const char* did) {
  if (epoch_of(other) < launch.block_start || other & MANY_BLOCKS)
    fault("race", 0, "it %s global memory, byte %zu of an argument, that another block %s", verb(access), at, did);
  const Index& first = threads[static_cast<size_t>(thread_of(other))].index;
  fault("race", 0, "it %s %s memory, byte %zu, that thread (%u, %u, %u) %s, with no barrier between", verb(access),
        name(slot), at, first.x, first.y, first.z, did);
}

[[noreturn]] void out_of_range(const void* address, size_t size, Access access) {
  if (address_in_memory(address) >= span)
    fault("range", 0, "it %s %zu bytes at %p, an address in no argument", verb(access), size, address);
  size_t slot = address_in_memory(address) >> SLOT, at = place_in_slot(address), whole = size_t{1} << SLOT;
  if (at > whole / 2)
    fault("range", 0, "it %s %zu bytes, %zu before the beginning of an argument", verb(access), size, whole - at);
  fault("range", 0, "it %s %zu bytes at byte %zu of %s memory of %zu bytes", verb(access), size, at, name(slot),
        slots[slot].size);
}

void check_writer(Thread& thread, size_t slot, size_t at, Access access, Cell writer) {
  if (writer & BULK) {
    if (!has_seen_bulk(thread, warp_epoch_of(writer)))
      fault("async", 0, "it %s shared memory, byte %zu, before its bulk copy is waited for", verb(access), at);
    return;
  }
  if (writer & PENDING)
    fault("async", 0, "it %s shared memory, byte %zu, before its asynchronous copy is waited for", verb(access), at);
  if (access == Access::atomic && writer & ATOMIC) {
    if (epoch_of(writer) < launch.block_start) acquire();
    return;
  }
  if (!is_before(writer, thread)) race(slot, at, access, writer, "wrote");
}

template <Access access, bool shared>
void touch_cells(Thread& thread, size_t slot, size_t at, size_t size) {
  Slot& memory = slots[slot];
  const Cell mine = now(thread);
  const int granule = memory.granule;
  const Cells* last = memory.cells + ((at + size - 1) >> granule);
  for (Cells* cells = memory.cells + (at >> granule); cells <= last; cells++) {
    size_t byte = static_cast<size_t>(cells - memory.cells) << granule;
    if (shared && epoch_of(cells->writer) < launch.block_start) cells->writer = 0;  // new in each block
    if (shared && epoch_of(cells->reader) < launch.block_start) cells->reader = 0;
    if (cells->writer && cells->writer != mine) check_writer(thread, slot, byte, access, cells->writer);
    if (access == Access::read) {
      if (shared && !cells->writer)
        fault("unwritten", 0, "it reads shared memory, byte %zu, that nobody has written", byte);
      if (cells->reader != mine) cells->reader = with_reader(cells->reader, mine);
    } else {
      if (cells->reader && cells->reader != mine && !readers_are_before(cells->reader, thread))
        race(slot, byte, access, cells->reader, "read");
      cells->writer = mine | (access == Access::atomic ? ATOMIC : 0);
    }
  }
  if (access != Access::read) memory.written = true;
  if (shared && access != Access::read) thread.writes_unfenced = true;
  if (access == Access::atomic) release();
}

constexpr uint64_t MOST_ACCESSES = uint64_t{1} << 31;

template <Access access>
inline void look(Thread& thread, const void* address, size_t size, bool aligned) {
  if (address_in_memory(address) >= span) {
    if (on_stack(address) || !stack) return;
    out_of_range(address, size, access);
  }
  size_t slot = address_in_memory(address) >> SLOT, at = place_in_slot(address);
  if (at + size > slots[slot].size) out_of_range(address, size, access);
  if (aligned && at & (size - 1))
    fault("alignment", 0, "it %s %zu bytes of %s memory at byte %zu, which %zu does not divide", verb(access), size,
          name(slot), at, size);
  if (++launch.accesses > MOST_ACCESSES)
    fault("limit", 0, "2**31 accesses in one turn: blocks run one after another, none can wait for a later one");
  if (size >> slots[slot].granule == 0) restart_with_finer_cells(size);
  if (slot) {
    if (launch.overlaps && !thread.waited && (access != Access::read || !slots[slot].settled))
      fault("race", 0, "it %s global memory, byte %zu of an argument, and has not waited for the launch before",
            verb(access), at);
    return touch_cells<access, false>(thread, slot, at, size);
  }
  if (!is_declared(at, size))
    fault("range", 0, "it %s %zu bytes at byte %zu of shared memory, where the kernel declares none", verb(access),
          size, at);
  if (!launch.serial && access != Access::atomic) count_touch(thread, at, size);
  touch_cells<access, true>(thread, slot, at, size);
}

}  // namespace

void touch(Thread& thread, const void* address, size_t size, Access access, bool aligned) {
  if (!size) return;
  if (access == Access::read) return look<Access::read>(thread, address, size, aligned);
  if (access == Access::write) return look<Access::write>(thread, address, size, aligned);
  look<Access::atomic>(thread, address, size, aligned);
}

void touch_pending(Thread& thread, const void* address, size_t size) {
  const bool unfenced = thread.writes_unfenced;
  touch(thread, address, size, Access::write);
  thread.writes_unfenced = unfenced;  // nothing is written yet
  const Slot& memory = slots[0];
  size_t at = place_in_slot(address);
  for (size_t i = at >> memory.granule; i <= (at + size - 1) >> memory.granule; i++) memory.cells[i].writer |= PENDING;
}

void settle(Thread& thread, const void* address, size_t size) {
  const Slot& memory = slots[0];
  size_t at = place_in_slot(address);
  for (size_t i = at >> memory.granule; i <= (at + size - 1) >> memory.granule; i++)
    memory.cells[i].writer = now(thread);
  thread.writes_unfenced = true;
}

}  // namespace sim

// The compiler calls these before each access of a kernel (-fsanitize=thread).
#define LOOK(access, size, aligned)                                  \
  {                                                                  \
    sim::launch.place = __builtin_return_address(0);                 \
    sim::look<sim::Access::access>(*sim::current, p, size, aligned); \
  }
#define ACCESS(size)                                                           \
  extern "C" void __tsan_read##size(void* p) LOOK(read, size, true)            \
  extern "C" void __tsan_write##size(void* p) LOOK(write, size, true)          \
  extern "C" void __tsan_unaligned_read##size(void* p) LOOK(read, size, false) \
  extern "C" void __tsan_unaligned_write##size(void* p) LOOK(write, size, false)
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
extern "C" void __tsan_read_range(void* p, size_t size) LOOK(read, size, false)
extern "C" void __tsan_write_range(void* p, size_t size) LOOK(write, size, false)
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
