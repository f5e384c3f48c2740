#include "warps.h"

#include <utility>

#include "banks.h"
#include "bulk.h"
#include "fibers.h"
#include "memory.h"

extern "C" {
sim::Index sim_thread_index, sim_block_index, sim_block_extent, sim_grid_extent;
}

namespace sim {

unsigned warp_epochs[32];

namespace {

struct Group {  // lanes that wait for one instruction
  int line;
  const char* name;
  unsigned mask, arrived;
  Work work;
  bool whoever;
  void* operands[WARP];
};

struct Warp {
  unsigned alive;
  std::vector<Group> groups;
};

struct Released {
  uint32_t epoch;
  bool released;
};

std::vector<Warp> warps;
std::vector<int> ready;
std::vector<Released> blocks;  // where each began
size_t next_ready;
uint64_t random_state;
int at_barrier, barrier_line;
uint64_t order_of_launch;
void (*thread_body)();

uint64_t random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

void wake(int number) {
  threads[number].waits_at = 0;
  ready.push_back(number);
}

// Ends the meeting of a group; the one who came last goes on at once, where there is one.
void complete(int warp, size_t which, int last) {
  Group group = warps[warp].groups[which];
  warps[warp].groups.erase(warps[warp].groups.begin() + which);
  Thread* lanes[WARP] = {};
  for (int lane = 0; lane < WARP; lane++)
    if (group.arrived >> lane & 1) lanes[lane] = &threads[warp * WARP + lane];
  group.work(lanes, group.operands, group.arrived);
  report.warp_instructions++;
  for (int lane = 0; lane < WARP; lane++)
    if (group.arrived >> lane & 1 && warp * WARP + lane != last) wake(warp * WARP + lane);
}

bool is_complete(const Group& group, unsigned alive) {
  return group.whoever ? group.arrived == alive : group.arrived == (group.mask & alive);
}

void thread_ends() {
  thread_body();
  Thread& thread = *current;
  thread.ended = true;
  launch.alive--;
  Warp& warp = warps[thread.warp];
  warp.alive &= ~(1u << thread.lane);
  for (size_t i = warp.groups.size(); i-- > 0;)
    if (is_complete(warp.groups[i], warp.alive)) complete(thread.warp, i, -1);
}

// Lanes that take who comes wait until nobody else can come.
bool complete_whoever() {
  bool any = false;
  for (size_t warp = 0; warp < warps.size(); warp++)
    for (size_t i = warps[warp].groups.size(); i-- > 0;)
      if (warps[warp].groups[i].whoever) {
        complete(static_cast<int>(warp), i, -1);
        any = true;
      }
  return any;
}

[[noreturn]] void stuck() {
  check_bulk_waits();
  for (size_t number = 0; number < warps.size(); number++)
    for (const Group& group : warps[number].groups)
      fault("convergence", group.line, "%s of warp %zu is reached by lanes %#x only, not by all of its mask %#x",
            group.name, number, group.arrived, group.mask & warps[number].alive);
  for (const Thread& thread : threads)
    if (thread.ended || thread.waits_at != barrier_line)
      fault("barrier", barrier_line, "a barrier is reached by %d of %d threads; thread (%u, %u, %u) %s", at_barrier,
            launch.threads, thread.index.x, thread.index.y, thread.index.z,
            thread.ended ? "has ended" : "waits elsewhere");
  fault("barrier", barrier_line, "a barrier is reached by %d of %d threads", at_barrier, launch.threads);
}

int next_thread(uint64_t seed) {
  if (seed > 1) {
    size_t chosen = next_ready + random() % (ready.size() - next_ready);
    std::swap(ready[chosen], ready[next_ready]);
  } else if (seed == 1) {
    int last = ready.back();
    ready.pop_back();
    return last;
  }
  int number = ready[next_ready++];
  if (next_ready > 4096) {
    ready.erase(ready.begin(), ready.begin() + static_cast<long>(next_ready));
    next_ready = 0;
  }
  return number;
}

void run(Thread& thread) {
  current = &thread;
  sim_thread_index = thread.index;
  launch.accesses = 0;
  if (!thread.fiber) thread.fiber = fiber_for(thread_ends);
  resume(thread.fiber);
  if (has_ended(thread.fiber)) {
    give_back(thread.fiber);
    thread.fiber = nullptr;
  }
}

}  // namespace

void order_warp(int warp, unsigned mask) {
  if (mask != warps[warp].alive) return;
  if (++warp_epochs[warp] > 0xffff) fault("limit", 0, "more than 65535 times __syncwarp between two barriers");
}

void wake_thread(int number) { wake(number); }

size_t chosen_of(size_t count) {
  return order_of_launch == 0 ? 0 : order_of_launch == 1 ? count - 1 : random() % count;
}

bool is_released(uint32_t epoch) {
  if (!launch.acquired) return false;
  size_t low = 0, high = blocks.size();
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    (blocks[middle].epoch <= epoch ? low : high) = middle;
  }
  return blocks[low].released;
}

void release() {
  if (current->fenced) blocks.back().released = true;
}

void acquire() { launch.acquired = true; }

void meet(int line, const char* name, unsigned mask, void* operands, Work work, bool whoever) {
  Thread& thread = *current;
  Warp& warp = warps[thread.warp];
  if (!whoever && !(mask >> thread.lane & 1))
    fault("convergence", line, "lane %d runs %s but is not in its mask %#x", thread.lane, name, mask);
  size_t i = 0;
  while (i < warp.groups.size() &&
         (warp.groups[i].line != line || warp.groups[i].mask != mask || warp.groups[i].work != work ||
          warp.groups[i].arrived >> thread.lane & 1))
    i++;
  if (i == warp.groups.size()) warp.groups.push_back(Group{line, name, mask, 0, work, whoever, {}});
  Group& group = warp.groups[i];
  group.arrived |= 1u << thread.lane;
  group.operands[thread.lane] = operands;
  if (is_complete(group, warp.alive)) {
    complete(thread.warp, i, thread.number);
  } else {
    thread.waits_at = line;
    pause();
  }
}

void barrier(int line) {
  Thread& thread = *current;
  if (!at_barrier) {
    barrier_line = line;
  } else if (line != barrier_line) {
    fault("barrier", line, "it waits at a barrier while others wait at that of line %d", barrier_line);
  }
  if (++at_barrier < launch.threads) {
    thread.waits_at = line;
    pause();
    return;
  }
  at_barrier = 0;
  launch.epoch++;
  report.barriers++;
  for (unsigned& epoch : warp_epochs) epoch = 0;
  if (!launch.serial) count_conflicts();
  for (const Thread& other : threads)
    if (&other != &thread) wake(other.number);
}

void start_launch() {
  blocks.clear();
  launch.epoch = 0;
}

bool run_block(void (*body)(), uint64_t seed) {
  thread_body = body;
  order_of_launch = seed;
  clear_bulk();
  random_state = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(launch.serial) + 1;
  launch.block_start = ++launch.epoch;
  launch.alive = launch.threads;
  launch.acquired = false;
  sim_block_index = launch.block;
  blocks.push_back({launch.epoch, false});
  ready.clear();
  next_ready = 0;
  at_barrier = 0;
  warps.resize((launch.threads + WARP - 1) / WARP);
  for (size_t i = 0; i < warps.size(); i++) {
    int lanes = launch.threads - static_cast<int>(i) * WARP;
    warps[i].alive = lanes >= WARP ? ~0u : (1u << lanes) - 1;
    warp_epochs[i] = 0;
    warps[i].groups.clear();
  }
  for (Thread& thread : threads) {
    thread.ended = thread.waited = thread.fenced = false;
    thread.sums_are_fenced = thread.writes_unfenced = false;
    thread.products.clear();
    thread.product_groups.clear();
    thread.waits_at = 0;
    thread.asked_at = -1;
    thread.phases.clear();
    thread.copies.clear();
    thread.groups.clear();
    thread.touches.clear();
    ready.push_back(thread.number);
  }
  while (launch.alive && !report.faulted) {
    if (next_ready == ready.size()) {
      if (complete_whoever() || deliver_bulk()) continue;
      current = nullptr;
      stuck();
    }
    run(threads[next_thread(seed)]);
  }
  if (!report.faulted) check_bulk_ended();
  if (!launch.serial) count_conflicts();
  return !report.faulted;
}

}  // namespace sim
