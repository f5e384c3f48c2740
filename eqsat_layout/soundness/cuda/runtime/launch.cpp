// The door for Python: memory, a launch, its report.
#include <dlfcn.h>
#include <setjmp.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "fibers.h"
#include "memory.h"
#include "state.h"
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

void** arguments;
void (*kernel)(void**);

void body() { kernel(arguments); }

jmp_buf leave;  // a fault ends the launch, on whatever stack it is found

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
    block_starts();
    run_block(body, order);
  }
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
  _longjmp(leave, 1);
}

}  // namespace sim

using namespace sim;

// `sizes`: bytes of an array, 0 for a number; `granules`: log2 of the bytes of an element. Arrays given twice are one.
extern "C" void sim_launch(void (*function)(void**), void** values, const size_t* sizes, const int* granules, int count,
                           Index grid, Index extent, size_t shared_bytes, uint64_t order, Report* result) {
  std::vector<void*> given(values, values + count), copies(count);
  report = Report{};
  launch = Launch{};
  launch.grid = sim_grid_extent = grid;
  launch.extent = sim_block_extent = extent;
  make_threads(extent);
  launch.threads = static_cast<int>(threads.size());
  current = nullptr;
  kernel = function;
  open_memory(count);
  size_shared(shared_bytes);
  for (int i = 0; i < count; i++) {
    long first = std::find(given.begin(), given.begin() + i, given[i]) - given.begin();
    if (!sizes[i]) {
      copies[i] = given[i];
    } else if (first < i) {
      copies[i] = copies[first];
    } else {
      copies[i] = add_argument(i, sizes[i], granules[i]);
      memcpy(copies[i], given[i], sizes[i]);
    }
  }
  arguments = copies.data();
  start_launch();
  if (!_setjmp(leave)) run_blocks(order);
  stop();
  for (Thread& thread : threads)
    if (thread.fiber) give_back(thread.fiber);
  for (int i = 0; i < count; i++)
    if (sizes[i] && was_written(i)) memcpy(given[i], copies[i], sizes[i]);
  close_memory();
  Dl_info library;  // Python asks for a place in the file; a return address is one past its call
  if (report.place && dladdr(report.place, &library))
    report.place = reinterpret_cast<void*>(static_cast<const char*>(report.place) - 1 -
                                           static_cast<const char*>(library.dli_fbase));
  *result = report;
}
