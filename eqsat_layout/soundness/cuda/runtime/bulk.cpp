// A copy arrives when all threads wait and one of them waits for its barrier, not before: as late as it may.
//
// A barrier of this kind orders the copies that it counts, and nothing else: arrivals of threads order nothing between
// them. What a copy wrote may be touched by who has waited for its phase, and by all behind a barrier of the block
// since then.
#include "bulk.h"

#include <algorithm>
#include <cstring>

#include "accesses.h"
#include "device_ptx.h"
#include "fibers.h"
#include "warps.h"

#define PLACE launch.place = __builtin_return_address(0)

namespace sim {
namespace {

constexpr int MOST_AXES = 5, LINE = 128, UNIT = 16;
constexpr long long MOST_BYTES = (1 << 20) - 1, MOST_COUNT = (1 << 20) - 1;
constexpr size_t MOST_COPIES = 1 << 16;  // what a cell has room for

struct Arrivals {  // PTX ISA, "mbarrier"
  unsigned at, count, pending;
  long long bytes;  // that are expected and have not come
  uint32_t phase;   // how many have ended
  int maker;
  bool fenced;
};

struct Row {
  unsigned to;       // before units are exchanged
  const char* from;  // of the first element of the axis; null: zeros
};

struct BulkCopy {
  unsigned barrier;
  uint32_t phase, seen;  // the interval in which a thread first knew that it had arrived; 0: none yet
  bool arrived;
  int line, size;  // of an element, in bytes
  long first, extent;
  std::vector<Row> rows;
};

struct Waiting {
  int thread, line;
  unsigned at, parity;
};

// What `simulator.py` makes of a tensor map, in place of the driver's bits.
struct TensorMap {
  const char* base;
  uint64_t rank, size;
  uint64_t extents[MOST_AXES], strides[MOST_AXES - 1];
  uint32_t box[MOST_AXES + 1];
};

std::vector<Arrivals> barriers;
std::vector<BulkCopy> copies;
std::vector<Waiting> waiting;

Arrivals& barrier_at_offset(int line, unsigned at) {
  PLACE;
  touch(*current, shared_memory() + at, 8, Access::read);
  for (Arrivals& one : barriers)
    if (one.at == at) return one;
  fault("async", line, "there is no mbarrier at byte %u of shared memory: nobody has initialised one", at);
}

bool has_ended(const Arrivals& barrier, unsigned parity) { return (barrier.phase & 1) != parity; }

void end_phase(Arrivals& barrier, int line) {
  if (barrier.pending || barrier.bytes) return;
  for (const BulkCopy& copy : copies)
    if (copy.barrier == barrier.at && !copy.arrived)
      fault("async", line, "a phase of the mbarrier at byte %u ends, and a bulk copy that it counts (line %d) is on its "
            "way: fewer bytes are expected than come", barrier.at, copy.line);
  barrier.phase++;
  barrier.pending = barrier.count;
  for (size_t i = waiting.size(); i-- > 0;) {
    if (waiting[i].at != barrier.at || !has_ended(barrier, waiting[i].parity)) continue;
    wake_thread(waiting[i].thread);
    waiting.erase(waiting.begin() + static_cast<long>(i));
  }
}

unsigned exchanged(unsigned at) { return at ^ (at >> 3 & 0x70); }

void arrive(BulkCopy& copy) {
  for (const Row& row : copy.rows)
    for (unsigned byte = 0; byte < LINE; byte++) {
      long element = copy.first + static_cast<long>(byte) / copy.size;
      bool inside = row.from && element >= 0 && element < copy.extent;
      shared_memory()[exchanged(row.to + byte)] = inside ? row.from[element * copy.size + byte % copy.size] : 0;
    }
  copy.arrived = true;
  auto barrier = std::find_if(barriers.begin(), barriers.end(), [&](const Arrivals& b) { return b.at == copy.barrier; });
  barrier->bytes -= static_cast<long long>(copy.rows.size()) * LINE;
  end_phase(*barrier, copy.line);
}

// From where the copy writes: nothing that others may still use, or have written unseen by the unit.
void claim(int line, const Row& row, Cell mine) {
  Slot& memory = slots[0];
  for (unsigned unit = 0; unit < LINE; unit += UNIT) {
    unsigned at = exchanged(row.to + unit);
    for (size_t i = at >> memory.granule; i <= (at + UNIT - 1) >> memory.granule; i++) {
      Cell writer = memory.cells[i].writer;
      if (epoch_of(writer) >= launch.block_start && !(writer & BULK) &&
          threads[static_cast<size_t>(thread_of(writer))].writes_unfenced)
        fault("async", line, "a bulk copy to byte %u of shared memory, where thread %d has written without "
              "fence.proxy.async", at, thread_of(writer));
    }
    const bool unfenced = current->writes_unfenced;
    touch(*current, shared_memory() + at, UNIT, Access::write);
    current->writes_unfenced = unfenced;  // it is the unit that writes
    for (size_t i = at >> memory.granule; i <= (at + UNIT - 1) >> memory.granule; i++) memory.cells[i].writer = mine;
  }
}

}  // namespace

void clear_bulk() {
  barriers.clear();
  copies.clear();
  waiting.clear();
}

bool deliver_bulk() {
  std::vector<size_t> possible;
  for (size_t i = 0; i < copies.size(); i++)
    if (!copies[i].arrived && std::any_of(waiting.begin(), waiting.end(),
                                          [&](const Waiting& one) { return one.at == copies[i].barrier; }))
      possible.push_back(i);
  if (possible.empty()) return false;
  current = nullptr;
  arrive(copies[possible[chosen_of(possible.size())]]);
  return true;
}

void check_bulk_ended() {
  for (const BulkCopy& copy : copies)
    if (!copy.arrived) fault("async", copy.line, "the block ends, and a bulk copy is on its way");
}

void check_bulk_waits() {
  if (waiting.empty()) return;
  const Waiting& one = waiting.front();
  for (const Arrivals& barrier : barriers)
    if (barrier.at == one.at)
      fault("async", one.line, "thread %d waits for a phase of the mbarrier at byte %u that does not end: %u arrivals "
            "and %lld bytes are missing", one.thread, one.at, barrier.pending, barrier.bytes);
}

void fence_barriers() {
  for (Arrivals& one : barriers)
    if (one.maker == current->number) one.fenced = true;
}

bool has_seen_bulk(const Thread& thread, unsigned number) {
  const BulkCopy& copy = copies[number];
  if (!copy.seen) return false;
  if (copy.seen < launch.epoch) return true;
  for (const Phases& one : thread.phases)
    if (one.barrier == copy.barrier) return one.ended > copy.phase;
  return false;
}

void mbarrier_init(int line, unsigned at, unsigned count) {
  PLACE;
  if (!count || count > MOST_COUNT) fault("limit", line, "an mbarrier of %u arrivals", count);
  const bool unfenced = current->writes_unfenced;
  touch(*current, shared_memory() + at, 8, Access::write);
  current->writes_unfenced = unfenced;  // fences of its own make it seen
  memset(shared_memory() + at, 0, 8);
  for (const Arrivals& one : barriers)
    if (one.at == at) fault("async", line, "the mbarrier at byte %u is initialised twice", at);
  barriers.push_back({at, count, count, 0, 0, current->number, false});
}

void mbarrier_arrive(int line, unsigned at, unsigned expected) {
  PLACE;
  Arrivals& barrier = barrier_at_offset(line, at);
  if (expected > MOST_BYTES) fault("limit", line, "an mbarrier that expects %u bytes", expected);
  if (!barrier.pending) fault("async", line, "more threads arrive at the mbarrier at byte %u than its count of %u", at,
                              barrier.count);
  barrier.pending--;
  barrier.bytes += expected;
  end_phase(barrier, line);
}

// May say no for no reason, and does at first: who does not ask again has not waited.
bool mbarrier_try_wait(int line, unsigned at, unsigned parity) {
  PLACE;
  Thread& thread = *current;
  if (!has_ended(barrier_at_offset(line, at), parity)) {
    if (thread.asked_at != static_cast<int>(at)) {
      thread.asked_at = static_cast<int>(at);
      return false;
    }
    waiting.push_back({thread.number, line, at, parity});
    thread.waits_at = line;
    pause();
  }
  thread.asked_at = -1;
  const Arrivals& barrier = barrier_at_offset(line, at);
  auto known = std::find_if(thread.phases.begin(), thread.phases.end(), [=](const Phases& p) { return p.barrier == at; });
  if (known == thread.phases.end()) known = thread.phases.insert(known, {at, 0});
  known->ended = barrier.phase;
  for (BulkCopy& copy : copies)
    if (copy.barrier == at && copy.phase < barrier.phase && !copy.seen) copy.seen = launch.epoch;
  return true;
}

void bulk_tensor(int line, unsigned to, const void* given, const std::initializer_list<int>& place, unsigned at) {
  PLACE;
  const Arrivals barrier = barrier_at_offset(line, at);
  const TensorMap& map = *static_cast<const TensorMap*>(given);
  if (map.rank != place.size()) fault("range", line, "%zu places along a tensor map of %d axes", place.size(),
                                      static_cast<int>(map.rank));
  if (!barrier.fenced) fault("async", line, "the unit for copies may not see the mbarrier at byte %u: there is neither "
                             "fence.mbarrier_init nor fence.proxy.async since it was initialised", at);
  if (map.box[0] * map.size != LINE) fault("limit", line, "boxes of rows of other than %d bytes are not simulated", LINE);
  if (to % LINE) fault("alignment", line, "a bulk copy to byte %u, which %d does not divide", to, LINE);
  if (copies.size() == MOST_COPIES) fault("limit", line, "more than %zu bulk copies in a block", MOST_COPIES);
  const int* first = place.begin();
  BulkCopy copy{at, barrier.phase, 0, false, line, static_cast<int>(map.size), first[0],
                static_cast<long>(map.extents[0]), {}};
  long begin = std::max(0L, copy.first), end = std::min(copy.first + static_cast<long>(map.box[0]), copy.extent);
  uint32_t count = 1;
  for (uint64_t axis = 1; axis < map.rank; axis++) count *= map.box[axis];
  const Cell mine = static_cast<Cell>(launch.epoch) << 32 | static_cast<Cell>(copies.size()) << 16 | BULK |
                    static_cast<Cell>(current->number);
  for (uint32_t number = 0; number < count; number++) {
    const char* from = map.base;
    uint32_t rest = number;
    for (uint64_t axis = 1; axis < map.rank; rest /= map.box[axis++]) {
      long index = first[axis] + static_cast<long>(rest % map.box[axis]);
      if (index < 0 || index >= static_cast<long>(map.extents[axis])) from = nullptr;
      if (from) from += index * static_cast<long>(map.strides[axis - 1]);
    }
    if (from && begin < end)
      touch(*current, from + begin * copy.size, static_cast<size_t>(end - begin) * map.size, Access::read, false);
    copy.rows.push_back({to + number * LINE, from});
    claim(line, copy.rows.back(), mine);
  }
  copies.push_back(std::move(copy));
}

}  // namespace sim
