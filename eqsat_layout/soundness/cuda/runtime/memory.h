// Memory of a launch: arguments and shared memory, each in a slot of 64 GiB of addresses, so that an index that leaves
// one never hits another; beside each, cells that say who touched it.
#pragma once
#include <vector>

#include "cells.h"

namespace sim {

constexpr int SLOT = 36;
constexpr size_t MOST_SHARED = 227 << 10;

struct Slot {
  size_t size;
  int granule;  // log2 of the bytes that one cell stands for
  bool written;
  bool settled;  // no launch that may go on still writes there
  Cells* cells;
  size_t cells_bytes;
};

extern char* base;
extern size_t span;
extern std::vector<Slot> slots;  // the first is shared memory

inline size_t address_in_memory(const void* address) {
  return static_cast<size_t>(static_cast<const char*>(address) - base);
}
inline size_t place_in_slot(const void* address) { return address_in_memory(address) & ((size_t{1} << SLOT) - 1); }
inline bool is_shared(const void* address) { return address_in_memory(address) < size_t{1} << SLOT; }

bool open_memory(int arguments, int shared_granule);
void* add_argument(int number, size_t size, int granule);
bool was_written(int number);
void close_memory();

char* shared_memory();
void size_shared(size_t bytes);  // of dynamic memory; what is static follows it
char* static_shared(int id, size_t bytes, size_t alignment);
bool is_declared(size_t begin, size_t size);  // of shared memory
void clear_shared();

}  // namespace sim
