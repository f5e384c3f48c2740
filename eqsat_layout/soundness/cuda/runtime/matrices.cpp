// Instructions of a warp on matrices: mma, ldmatrix, stmatrix.
//
// One law gives all fragments of mma.m16n8k* (PTX ISA 9.7.14.5, "Matrix Fragments for mma.m16n8k..."). With `e`
// elements in a register, lane 4 g + t holds in register w of A row g + 8 (w mod 2), columns e t + 4 e (w / 2) and on;
// in register w of B rows e t + 4 e w and on of column g; in register w of C, if those have 32 bits, row g + 8 (w / 2),
// column 2 t + w mod 2.
#include <algorithm>

#include "accesses.h"
#include "device_ptx.h"
#include "numbers.h"
#include "warps.h"

#define PLACE launch.place = __builtin_return_address(0)

namespace sim {
namespace {

struct Product {
  int depth;
  Element a_type, b_type;
  Result result;
  uint32_t* d;
  const uint32_t *a, *b, *c;
};

constexpr int M = 16, N = 8, DEEPEST = 32;

constexpr int bits_of_element(Element type) { return type == Element::tf32 ? 32 : type >= Element::s8 ? 8 : 16; }

template <Element type>
double element(uint32_t word, int which) {
  if (type == Element::f16) return half_value(static_cast<uint16_t>(word >> 16 * which));
  if (type == Element::bf16) return float_of((word >> 16 * which) << 16);
  if (type == Element::tf32) return float_of(word & 0xffffe000);
  if (type == Element::s8) return static_cast<int8_t>(word >> 8 * which);
  return static_cast<uint8_t>(word >> 8 * which);
}

template <Element type>
void gather_a(void* const* operands, double (*a)[DEEPEST]) {
  constexpr int each = 32 / bits_of_element(type);
  const int registers = static_cast<Product*>(operands[0])->depth / (2 * each);
  for (int lane = 0; lane < WARP; lane++) {
    const uint32_t* words = static_cast<Product*>(operands[lane])->a;
    for (int w = 0; w < registers; w++)
      for (int i = 0; i < each; i++)
        a[lane / 4 + 8 * (w % 2)][each * (lane % 4) + 4 * each * (w / 2) + i] = element<type>(words[w], i);
  }
}

template <Element type>
void gather_b(void* const* operands, double (*b)[N]) {
  constexpr int each = 32 / bits_of_element(type);
  const int registers = static_cast<Product*>(operands[0])->depth / (4 * each);
  for (int lane = 0; lane < WARP; lane++) {
    const uint32_t* words = static_cast<Product*>(operands[lane])->b;
    for (int w = 0; w < registers; w++)
      for (int i = 0; i < each; i++) b[each * (lane % 4) + 4 * each * w + i][lane / 4] = element<type>(words[w], i);
  }
}

void gather(void* const* operands, double (*a)[DEEPEST], double (*b)[N]) {
  static constexpr void (*GATHER_A[])(void* const*, double (*)[DEEPEST]) = {
      gather_a<Element::f16>, gather_a<Element::bf16>, gather_a<Element::tf32>, gather_a<Element::s8>,
      gather_a<Element::u8>};
  static constexpr void (*GATHER_B[])(void* const*, double (*)[N]) = {
      gather_b<Element::f16>, gather_b<Element::bf16>, gather_b<Element::tf32>, gather_b<Element::s8>,
      gather_b<Element::u8>};
  const auto& first = *static_cast<Product*>(operands[0]);
  GATHER_A[static_cast<int>(first.a_type)](operands, a);
  GATHER_B[static_cast<int>(first.b_type)](operands, b);
}

void need_whole_warp(const char* name, unsigned mask) {
  if (~mask) fault("convergence", 0, "%s in a warp of which only lanes %#x are there", name, mask);
}

uint32_t wrapped(double sum, bool saturates) {
  if (saturates) sum = std::min(2147483647.0, std::max(-2147483648.0, sum));
  return static_cast<uint32_t>(static_cast<int64_t>(sum));
}

// Sums in double precision, rounded once: a card rounds more often, in an order that nobody promises.
void multiply(Thread* const*, void* const* operands, unsigned mask) {
  need_whole_warp("mma.sync", mask);
  static double a[M][DEEPEST], b[DEEPEST][N], sums[M][N];
  const auto& first = *static_cast<Product*>(operands[0]);
  gather(operands, a, b);
  for (int row = 0; row < M; row++) {
    double sum[N] = {};
    for (int k = 0; k < first.depth; k++)
      for (int column = 0; column < N; column++) sum[column] += a[row][k] * b[k][column];
    std::copy(sum, sum + N, sums[row]);
  }
  for (int lane = 0; lane < WARP; lane++) {
    const auto& one = *static_cast<Product*>(operands[lane]);
    int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
      double sum = sums[g + 8 * (i / 2)][2 * t + i % 2];
      if (one.result == Result::f32) {
        one.d[i] = bits_of(static_cast<float>(sum + float_of(one.c[i])));
      } else if (one.result == Result::f16) {
        uint32_t word = one.c[i / 2], shift = 16 * (i % 2);
        uint32_t rounded = half_bits(static_cast<float>(sum + half_value(word >> shift & 0xffff)));
        one.d[i / 2] = i % 2 ? (one.d[i / 2] & 0xffff) | rounded << 16 : rounded;
      } else {
        one.d[i] = wrapped(sum + static_cast<int32_t>(one.c[i]), one.result == Result::s32_saturated);
      }
    }
  }
  report.products++;
}

struct Rows {
  int line, count;
  bool transposed, stores;
  uint32_t* registers;
  unsigned row;
};

// Lane 8 m + r gives the address of row r of matrix m; lane l holds of each matrix the two elements at row l / 4,
// columns 2 (l mod 4) and on, rows and columns exchanged if transposed (PTX ISA 9.7.14.5.15, ldmatrix).
void move_matrices(Thread* const* lanes, void* const* operands, unsigned mask) {
  need_whole_warp("ldmatrix or stmatrix", mask);
  const auto& first = *static_cast<Rows*>(operands[0]);
  uint16_t matrix[8][8];
  for (int m = 0; m < first.count; m++) {
    char* rows[8];
    for (int r = 0; r < 8; r++) {
      current = lanes[8 * m + r];
      rows[r] = shared_memory() + static_cast<Rows*>(operands[8 * m + r])->row;
      touch(*current, rows[r], 16, first.stores ? Access::write : Access::read);
    }
    if (!first.stores)
      for (int r = 0; r < 8; r++) memcpy(matrix[r], rows[r], 16);
    for (int lane = 0; lane < WARP; lane++) {
      uint32_t& word = static_cast<Rows*>(operands[lane])->registers[m];
      if (!first.stores) word = 0;
      for (int i = 0; i < 2; i++) {
        int row = lane / 4, column = 2 * (lane % 4) + i;
        uint16_t& at = first.transposed ? matrix[column][row] : matrix[row][column];
        if (first.stores)
          at = static_cast<uint16_t>(word >> 16 * i);
        else
          word |= static_cast<uint32_t>(at) << 16 * i;
      }
    }
    if (first.stores)
      for (int r = 0; r < 8; r++) memcpy(rows[r], matrix[r], 16);
  }
}

void move(int line, int count, bool transposed, bool stores, uint32_t* registers, unsigned row) {
  Thread* thread = current;
  Rows rows{line, count, transposed, stores, registers, row};
  meet(line, stores ? "stmatrix" : "ldmatrix", ~0u, &rows, move_matrices);
  current = thread;
}

}  // namespace

void mma(int line, int depth, Element a_type, Element b_type, Result result, uint32_t* d, const uint32_t* a,
         const uint32_t* b, const uint32_t* c) {
  PLACE;
  Product product{depth, a_type, b_type, result, d, a, b, c};
  meet(line, "mma.sync", ~0u, &product, multiply);
}

void ldmatrix(int line, int count, bool transposed, uint32_t* registers, unsigned row) {
  PLACE;
  move(line, count, transposed, false, registers, row);
}

void stmatrix(int line, int count, bool transposed, const uint32_t* registers, unsigned row) {
  PLACE;
  move(line, count, transposed, true, const_cast<uint32_t*>(registers), row);
}

}  // namespace sim
