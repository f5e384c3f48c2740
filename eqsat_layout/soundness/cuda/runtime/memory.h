// Memory of a launch, and what is known of each piece of it: who wrote and read it last, and when.
//
// Arguments and shared memory lie in slots of 64 GiB of addresses, so that an index that leaves one never hits another.
// An access is looked at before it happens: one that may not is a fault, and does not happen.
#pragma once
#include "state.h"

namespace sim {

enum class Access { read, write, atomic };

char* shared_memory();
size_t shared_size();

void open_memory(int arguments);
void* add_argument(int number, size_t size, int granule);  // `granule`: log2 of the bytes that one cell stands for
bool was_written(int number);
void close_memory();
void size_shared(size_t bytes);  // of dynamic memory; what is static follows it
char* static_shared(int id, size_t bytes, size_t alignment);
void block_starts();

void touch(Thread&, const void* address, size_t size, Access, bool vector = true);
bool is_shared(const void* address);

void touch_pending(Thread&, const void* address, size_t size);  // an asynchronous copy is under way to there
void settle(Thread&, const void* address, size_t size);         // it has arrived

}  // namespace sim
