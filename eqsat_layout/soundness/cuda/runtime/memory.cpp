#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace sim {

char* base;
size_t span;
std::vector<Slot> slots;

namespace {

constexpr size_t PAGE = 4096, GAP = 16;

struct Static {
  size_t begin, end;
};

std::vector<Static> statics;
size_t dynamic_end;

size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

char* pages(size_t bytes, int protection) {
  void* found = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? nullptr : static_cast<char*>(found);
}

size_t end_of_statics() {
  size_t end = dynamic_end;
  for (const Static& one : statics) end = std::max(end, one.end);
  return end;
}

}  // namespace

bool open_memory(int arguments, int shared_granule) {
  span = static_cast<size_t>(arguments + 1) << SLOT;
  base = pages(span, PROT_NONE);
  slots.assign(static_cast<size_t>(arguments) + 1, Slot{});
  statics.clear();
  return base && add_argument(-1, 2 * MOST_SHARED, shared_granule);
}

void* add_argument(int number, size_t size, int granule) {
  Slot& slot = slots[static_cast<size_t>(number + 1)];
  char* memory = base + (static_cast<size_t>(number + 1) << SLOT);
  size_t bytes = whole_pages(((size >> granule) + 1) * sizeof(Cells));
  slot = {size, granule, false, false, reinterpret_cast<Cells*>(pages(bytes, PROT_READ | PROT_WRITE)), bytes};
  if (!slot.cells || mprotect(memory, whole_pages(size), PROT_READ | PROT_WRITE)) return nullptr;
  return memory;
}

bool was_written(int number) { return slots[static_cast<size_t>(number + 1)].written; }

void close_memory() {
  for (Slot& slot : slots)
    if (slot.cells) munmap(slot.cells, slot.cells_bytes);
  if (base) munmap(base, span);
  base = nullptr;
}

char* shared_memory() { return base; }

void size_shared(size_t bytes) { dynamic_end = bytes; }

char* static_shared(int id, size_t bytes, size_t alignment) {
  if (id >= static_cast<int>(statics.size())) statics.resize(static_cast<size_t>(id) + 1, Static{0, 0});
  Static& one = statics[static_cast<size_t>(id)];
  if (!one.end) {
    size_t begin = (end_of_statics() + GAP + alignment - 1) / alignment * alignment;  // the gap is nobody's
    if (begin + bytes > slots[0].size) fault("limit", 0, "more than %zu bytes of shared memory", MOST_SHARED);
    one = {begin, begin + bytes};
  }
  return base + one.begin;
}

bool is_declared(size_t begin, size_t size) {
  if (begin + size <= dynamic_end) return true;
  return std::any_of(statics.begin(), statics.end(),
                     [=](const Static& one) { return begin >= one.begin && begin + size <= one.end; });
}

void clear_shared() { memset(base, 0xff, end_of_statics()); }  // NaN in all floating-point types

}  // namespace sim
