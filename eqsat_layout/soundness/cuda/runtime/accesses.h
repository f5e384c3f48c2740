// Each access to memory is looked at before it happens: one that may not is a fault, and does not happen.
#pragma once
#include "memory.h"

namespace sim {

enum class Access { read, write, atomic };

void touch(Thread&, const void* address, size_t size, Access, bool aligned = true);

void touch_pending(Thread&, const void* address, size_t size);  // an asynchronous copy is under way to there
void settle(Thread&, const void* address, size_t size);         // it has arrived

}  // namespace sim
