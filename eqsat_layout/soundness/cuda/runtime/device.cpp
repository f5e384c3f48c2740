// What kernels ask for, one thread at a time: shared memory, atomics, fences, loads and stores, asynchronous copies.
#include <cstring>

#include "accesses.h"
#include "device_ptx.h"
#include "warps.h"

#define PLACE launch.place = __builtin_return_address(0)

namespace sim {

namespace {

char* at_offset(unsigned offset) { return shared_memory() + offset; }

void arrive(Thread& thread, size_t copies) {
  for (size_t i = 0; i < copies; i++) {
    const Copy& copy = thread.copies[i];
    settle(thread, copy.to, copy.bytes);
    memcpy(copy.to, copy.from, copy.taken);
    memset(copy.to + copy.taken, 0, copy.bytes - copy.taken);
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<long>(copies));
}

}  // namespace

void read_atomic(const void* from, void* to, size_t size) {
  PLACE;
  touch(*current, from, size, Access::atomic);
  memcpy(to, from, size);
}

void write_atomic(void* to, const void* from, size_t size) { memcpy(to, from, size); }

void fence() { current->fenced = true; }

unsigned shared_offset(int line, const void* address) {
  if (!is_shared(address)) fault("range", line, "an address that is not in shared memory is taken as one");
  return static_cast<unsigned>(static_cast<const char*>(address) - shared_memory());
}

void trap(int line, const char* what) { fault("trap", line, "%s", what); }

void wait_for_launches() { current->waited = launch.waited = true; }

void load_shared(int, void* to, unsigned from, size_t size) {
  PLACE;
  touch(*current, at_offset(from), size, Access::read);
  memcpy(to, at_offset(from), size);
}

void store_shared(int, unsigned to, const void* from, size_t size) {
  PLACE;
  touch(*current, at_offset(to), size, Access::write);
  memcpy(at_offset(to), from, size);
}

void load_global(int, void* to, const void* from, size_t size) {
  PLACE;
  touch(*current, from, size, Access::read);
  memcpy(to, from, size);
}

void store_global(int, void* to, const void* from, size_t size) {
  PLACE;
  touch(*current, to, size, Access::write);
  memcpy(to, from, size);
}

void* copy_bytes(void* to, const void* from, size_t size) {
  PLACE;
  touch(*current, from, size, Access::read, false);
  touch(*current, to, size, Access::write, false);
  return memmove(to, from, size);
}

void* set_bytes(void* to, int value, size_t size) {
  PLACE;
  touch(*current, to, size, Access::write, false);
  return memset(to, value, size);
}

// The copy reads and writes when it is waited for; until then nobody may touch where it goes.
void cp_async(int line, unsigned to, const void* from, unsigned bytes, unsigned taken, bool around_l1) {
  PLACE;
  if (bytes != 16 && (around_l1 || (bytes != 4 && bytes != 8)))
    fault("async", line, "cp.async%s of %u bytes", around_l1 ? ".cg" : ".ca", bytes);
  if (taken > bytes) fault("async", line, "a copy of %u bytes that reads %u", bytes, taken);
  if (reinterpret_cast<uintptr_t>(from) % bytes)
    fault("alignment", line, "it copies %u bytes from an address that %u does not divide", bytes, bytes);
  if (taken && is_shared(from)) fault("range", line, "cp.async reads shared memory as if it were global");
  if (taken) touch(*current, from, taken, Access::read, false);
  touch_pending(*current, at_offset(to), bytes);
  current->copies.push_back({at_offset(to), static_cast<const char*>(from), bytes, taken});
}

void cp_async_commit() { current->groups.push_back(current->copies.size()); }

void cp_async_wait(unsigned pending) {
  Thread& thread = *current;
  if (thread.groups.size() <= pending) return;
  size_t finished = thread.groups.size() - pending, copies = thread.groups[finished - 1];
  arrive(thread, copies);
  thread.groups.erase(thread.groups.begin(), thread.groups.begin() + static_cast<long>(finished));
  for (size_t& end : thread.groups) end -= copies;
}

void cp_async_wait_all() {
  cp_async_commit();
  cp_async_wait(0);
}

}  // namespace sim
