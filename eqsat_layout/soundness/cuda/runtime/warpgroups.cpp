// Products of four warps at once (wgmma): both operands lie in shared memory, and are read when they are waited for.
//
// Sums of lane 4 g + t of warp w: those at row 16 w + g + 8 h, column 8 j + 2 t + c are in register 4 j + 2 h + c (PTX
// ISA 9.7.17.5.1.1). Operands lie along the steps, in rows of 128 bytes whose units of 16 are exchanged by the row.
#include <algorithm>
#include <cstring>

#include "accesses.h"
#include "bulk.h"
#include "device_ptx.h"
#include "numbers.h"
#include "warps.h"

#define PLACE launch.place = __builtin_return_address(0)

namespace sim {
namespace {

constexpr int GROUP = 128, STEPS = 16, UNIT = 16, LINE = 128;

struct Matrix {
  unsigned begin, apart;  // bytes: from the start of shared memory, between groups of 8 rows
};

Matrix described(int line, uint64_t descriptor) {
  if (descriptor >> 62 != 1 || descriptor >> 49 & 7)
    fault("limit", line, "wgmma of operands that do not lie in exchanged rows of 128 bytes is not simulated");
  return {static_cast<unsigned>(descriptor & 0x3fff) << 4, static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4};
}

void read_row(Thread& thread, const Matrix& matrix, Element type, int row, double* values) {
  for (int unit = 0; unit < 2; unit++) {
    unsigned at = matrix.begin + row / 8 * matrix.apart + row % 8 * LINE + unit * UNIT;
    at ^= at >> 3 & 0x70;
    touch(thread, shared_memory() + at, UNIT, Access::read);
    uint16_t bits[UNIT / 2];
    memcpy(bits, shared_memory() + at, UNIT);
    for (int i = 0; i < UNIT / 2; i++)
      values[unit * UNIT / 2 + i] =
          type == Element::f16 ? half_value(bits[i]) : float_of(static_cast<uint32_t>(bits[i]) << 16);
  }
}

// What one lane has of a product.
void finish(Thread& thread, const GroupProduct& product) {
  launch.place = product.place;
  Matrix a = described(0, product.a), b = described(0, product.b);
  double left[2][STEPS], right[STEPS];
  for (int half = 0; half < 2; half++)
    read_row(thread, a, product.type, thread.warp % 4 * 16 + thread.lane / 4 + 8 * half, left[half]);
  for (int column = 0; column < product.columns; column++) {
    if (column % 8 / 2 != thread.lane % 4) continue;
    read_row(thread, b, product.type, column, right);
    for (int half = 0; half < 2; half++) {
      float* sum = product.sums[static_cast<size_t>(column / 8 * 4 + half * 2 + column % 2)];
      double total = product.adds ? *sum : 0.0;
      for (int step = 0; step < STEPS; step++) total += left[half][step] * right[step];
      *sum = static_cast<float>(total);
    }
  }
}

void together(Thread* const*, void* const*, unsigned mask) {
  if (~mask) fault("convergence", 0, "wgmma in a warp of which only lanes %#x are there", mask);
}

}  // namespace

void wgmma_fence() { current->sums_are_fenced = true; }

void fence_proxy() {
  current->writes_unfenced = false;
  fence_barriers();
}

void wgmma(int line, Element type, int columns, float* const* sums, uint64_t a, uint64_t b, bool adds) {
  PLACE;
  if (launch.threads % GROUP) fault("convergence", line, "wgmma in a block that is not made of groups of four warps");
  if (!current->sums_are_fenced) fault("async", line, "wgmma without wgmma.fence since its registers were waited for");
  for (const Thread& other : threads)
    if (other.writes_unfenced)
      fault("async", line, "wgmma reads shared memory, and thread %d has written there without fence.proxy.async",
            other.number);
  described(line, a);
  described(line, b);
  meet(line, "wgmma", ~0u, nullptr, together);
  if (current->lane == 0 && current->warp % 4 == 0) report.products++;
  current->products.push_back({type, columns, a, b, adds, {sums, sums + columns / 2}, launch.place});
}

void wgmma_commit() { current->product_groups.push_back(current->products.size()); }

void wgmma_wait(unsigned pending) {
  Thread& thread = *current;
  thread.sums_are_fenced = false;
  if (thread.product_groups.size() <= pending) return;
  size_t finished = thread.product_groups.size() - pending, count = thread.product_groups[finished - 1];
  for (size_t i = 0; i < count; i++) finish(thread, thread.products[i]);
  thread.products.erase(thread.products.begin(), thread.products.begin() + static_cast<long>(count));
  thread.product_groups.erase(thread.product_groups.begin(),
                              thread.product_groups.begin() + static_cast<long>(finished));
  for (size_t& end : thread.product_groups) end -= count;
}

}  // namespace sim
