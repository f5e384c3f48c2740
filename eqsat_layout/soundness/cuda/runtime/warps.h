// Threads that wait for one another: barriers of the block, instructions of a warp.
#pragma once
#include "state.h"

namespace sim {

// What a warp instruction does once its lanes have met: `lanes` are those of `mask`, each with its operands.
using Work = void (*)(Thread* const* lanes, void* const* operands, unsigned mask);

// Waits for the lanes of `mask`, then one of them does the work for all. `whoever`: for those that come.
void meet(int line, const char* name, unsigned mask, void* operands, Work work, bool whoever = false);
void barrier(int line);
void order_warp(int warp, unsigned mask);  // what its lanes did until now comes before what they do next, if all wait

// Between blocks: one that changed something atomically after a fence has released what it wrote, and one that changes
// the same after that has acquired it.
void release();
void acquire();
bool is_released(uint32_t epoch);

void wake_thread(int number);      // that paused
size_t chosen_of(size_t count);    // in the order of the launch

// Runs one block; false: a fault.
bool run_block(void (*body)(), uint64_t seed);
void start_launch();

}  // namespace sim
