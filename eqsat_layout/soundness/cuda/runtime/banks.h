// Bank conflicts: how many cycles the shared memory takes for what the warps of the first block ask of it.
#pragma once
#include "state.h"

namespace sim {

void count_touch(Thread&, size_t offset, size_t size);
void count_conflicts();  // of what was touched since the last barrier

}  // namespace sim
