// Stacks that take turns on one processor, without a system call for a turn.
//
// In: a function. Out: it runs on a stack of its own until it gives up its turn, and goes on where it was.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sim {

struct Fiber;

Fiber* fiber_for(void (*function)());  // a stack that is free, or a new one
void give_back(Fiber*);
void unmap_idle();  // a process has so many mappings, and libraries stay loaded
void resume(Fiber*);        // from the scheduler; returns when the fiber pauses or ends
void pause();               // from a fiber
bool has_ended(Fiber*);
void stop();                // nothing runs, whatever did: a fault has left its stack

constexpr size_t STACK = 256 << 10;
extern uintptr_t stack;  // the lowest address of that of the fiber that runs; 0 where none does

inline bool on_stack(const void* address) { return reinterpret_cast<uintptr_t>(address) - stack < STACK; }

}  // namespace sim
