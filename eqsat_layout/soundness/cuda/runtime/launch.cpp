// The door for Python: memory, a launch, its report.
#include <dlfcn.h>
#include <setjmp.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "fibers.h"
#include "memory.h"
#include "warps.h"

extern "C" {
extern sim::Index sim_thread_index, sim_block_index, sim_block_extent, sim_grid_extent;
}

namespace sim {

Launch launch;
Report report;
Thread* current;
std::vector<Thread> threads;

namespace {

constexpr int FAULTED = 1, RESTARTED = 2;

void** arguments;
int finest;  // log2 of the bytes that a cell may stand for
void (*kernel)(void**);

void body() { kernel(arguments); }

jmp_buf leave;

uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  return value ^ value >> 27;
}

std::vector<size_t> order_of_blocks(size_t count, uint64_t order) {
  std::vector<size_t> blocks(count);
  for (size_t i = 0; i < count; i++) blocks[i] = order == 1 ? count - 1 - i : i;
  if (order > 1)
    for (size_t i = count; i > 1; i--) std::swap(blocks[i - 1], blocks[mixed(order * count + i) % i]);
  return blocks;
}

void make_threads(Index extent) {
  threads.clear();
  threads.resize(size_t{extent.x} * extent.y * extent.z);
  int number = 0;
  for (unsigned z = 0; z < extent.z; z++)
    for (unsigned y = 0; y < extent.y; y++)
      for (unsigned x = 0; x < extent.x; x++, number++) {
        Thread& thread = threads[number];
        thread.index = {x, y, z};
        thread.number = number;
        thread.warp = number / WARP;
        thread.lane = number % WARP;
        thread.fiber = nullptr;
      }
}

void run_blocks(uint64_t order) {
  const Index grid = launch.grid;
  std::vector<size_t> blocks = order_of_blocks(size_t{grid.x} * grid.y * grid.z, order);
  for (size_t i = 0; i < blocks.size(); i++) {
    size_t at = blocks[i];
    launch.serial = static_cast<int>(i);
    launch.block = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                    static_cast<unsigned>(at / grid.x / grid.y)};
    clear_shared();
    run_block(body, order);
  }
}

void note_fault(const char* kind, const char* format, size_t value) {
  report.faulted = 1;
  snprintf(report.kind, sizeof report.kind, "%s", kind);
  snprintf(report.text, sizeof report.text, format, value);
}

}  // namespace

void fault(const char* kind, int line, const char* format, ...) {
  report.faulted = 1;
  report.line = line;
  report.place = launch.place;
  snprintf(report.kind, sizeof report.kind, "%s", kind);
  int used = 0;
  if (current) {
    const Index& index = current->index;
    used = snprintf(report.text, sizeof report.text, "thread (%u, %u, %u) of block (%u, %u, %u): ", index.x, index.y,
                    index.z, launch.block.x, launch.block.y, launch.block.z);
  }
  va_list values;
  va_start(values, format);
  vsnprintf(report.text + used, sizeof report.text - used, format, values);
  va_end(values);
  _longjmp(leave, FAULTED);
}

void restart_with_finer_cells(size_t size) {
  while (size >> finest == 0) finest--;
  _longjmp(leave, RESTARTED);
}

}  // namespace sim

using namespace sim;

namespace {

struct Arguments {
  void** values;  // of arrays and of numbers
  const size_t* sizes;
  const int* granules;  // -1: a number
  const int* settled;  // null: all launches before this one have ended
  int* written;
  void** maps;  // of arrays that are looked at by a tensor map: what is given in their place
  int count;
};

// Copies of the arrays; those that are given twice are one. One without elements may begin where another does.
std::vector<void*> copied(const Arguments& given) {
  std::vector<void*> copies;
  for (int i = 0; i < given.count; i++) {
    int first = 0;
    while (first < i && !(given.sizes[i] && given.sizes[first] && given.values[first] == given.values[i])) first++;
    if (given.granules[i] < 0) {
      copies.push_back(given.values[i]);
    } else if (first < i) {
      copies.push_back(copies[static_cast<size_t>(first)]);
    } else {
      copies.push_back(add_argument(i, given.sizes[i], std::min(given.granules[i], finest)));
      if (!copies.back()) fault("limit", 0, "no memory for argument %d of %zu bytes", i, given.sizes[i]);
      memcpy(copies.back(), given.values[i], given.sizes[i]);
      slots[static_cast<size_t>(i) + 1].settled = given.settled && given.settled[i];
    }
  }
  return copies;
}

void copy_back(const Arguments& given, const std::vector<void*>& copies) {
  for (size_t i = 0; i < copies.size(); i++) {
    if (!given.sizes[i]) continue;
    auto first = std::find(copies.begin(), copies.end(), copies[i]) - copies.begin();
    given.written[i] = was_written(static_cast<int>(first));
    if (!memcmp(given.values[i], copies[i], given.sizes[i])) continue;
    if (!report.faulted && !given.written[i])
      note_fault("unseen", "argument %zu is changed by code that the compiler does not watch", i);
    memcpy(given.values[i], copies[i], given.sizes[i]);
  }
}

// False: finer cells are needed, and nothing has happened.
bool run(const Arguments& given, size_t shared_bytes, uint64_t order) {
  static std::vector<void*> copies;
  int how = _setjmp(leave);
  if (!how) {
    current = nullptr;
    if (!open_memory(given.count, std::min(2, finest))) fault("limit", 0, "no memory for %d arguments", given.count);
    size_shared(shared_bytes);
    copies = copied(given);
    static std::vector<void*> passed;
    passed = copies;
    for (size_t i = 0; i < passed.size(); i++)
      if (given.maps[i]) {
        memcpy(given.maps[i], &copies[i], sizeof copies[i]);  // its first word is the address
        passed[i] = given.maps[i];
      }
    arguments = passed.data();
    start_launch();
    run_blocks(order);
    if (launch.overlaps && !launch.waited)
      note_fault("race", "none of %zu threads waits for the launch before, so that the next one can't either",
                 threads.size());
  }
  stop();
  for (Thread& thread : threads)
    if (thread.fiber) give_back(thread.fiber);
  if (how != RESTARTED) copy_back(given, copies);
  close_memory();
  return how != RESTARTED;
}

}  // namespace

// `sizes`: bytes of an array, 0 for a number; `granules`: log2 of the bytes of an element, -1 for a number; `settled`:
// of a launch that overlaps with those before it, what none of them writes. What it writes is told in `written`.
extern "C" __attribute__((visibility("default"))) void sim_launch(void (*function)(void**), void** values,
                                                                  const size_t* sizes, const int* granules, const int* settled,
                                                                  int* written, void** maps, int count,
                                                                  Index grid, Index extent, size_t shared_bytes,
                                                                  uint64_t order, Report* result) {
  kernel = function;
  finest = 4;
  do {
    report = Report{};
    launch = Launch{};
    launch.grid = sim_grid_extent = grid;
    launch.extent = sim_block_extent = extent;
    launch.overlaps = settled;
    make_threads(extent);
    launch.threads = static_cast<int>(threads.size());
  } while (!run({values, sizes, granules, settled, written, maps, count}, shared_bytes, order));
  unmap_idle();
  Dl_info library;  // Python asks for a place in the file; a return address is one past its call
  if (report.place && dladdr(report.place, &library))
    report.place = reinterpret_cast<void*>(static_cast<const char*>(report.place) - 1 -
                                           static_cast<const char*>(library.dli_fbase));
  *result = report;
}
