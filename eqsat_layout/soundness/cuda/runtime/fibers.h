// Stacks that take turns on one processor, without a system call for a turn.
//
// In: a function. Out: it runs on a stack of its own until it gives up its turn, and goes on where it was.
#pragma once
#include <cstddef>

namespace sim {

struct Fiber;

Fiber* fiber_for(void (*function)());  // a stack that is free, or a new one
void give_back(Fiber*);
void resume(Fiber*);        // from the scheduler; returns when the fiber pauses or ends
void pause();               // from a fiber
bool has_ended(Fiber*);
bool on_stack(const void* address, size_t size);  // of the fiber that runs
bool in_fiber();
void stop();  // nothing runs, whatever did: a fault has left its stack

}  // namespace sim
