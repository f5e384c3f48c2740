// half and bfloat16 as CUDA has them: each operation rounds to the nearest, ties to even.
//
// A float holds a product, sum or quotient of two of them exactly enough that rounding it again rounds correctly.
#pragma once
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "device_math.h"
#include "numbers.h"
#include "vectors.h"

namespace sim {

struct HalfFormat {
  static uint16_t rounded(float value) { return half_bits(value); }
  static float value(uint16_t bits) { return half_value(bits); }
};

struct Bfloat16Format {
  static uint16_t rounded(float value) { return bfloat16_bits(value); }
  static float value(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }
};

template <class Format>
struct Small {
  uint16_t __x;

  Small() = default;
  template <class Same, class = std::enable_if_t<std::is_same_v<Same, Small>>>
  Small(const volatile Same& other) : __x(other.__x) {}  // a template, so that copies stay trivial
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Small(Number value) : __x(Format::rounded(static_cast<float>(value))) {}
  template <class Other>
  explicit Small(Small<Other> value) : __x(Format::rounded(static_cast<float>(value))) {}
  template <class Same, class = std::enable_if_t<std::is_same_v<Same, Small>>>
  void operator=(const volatile Same& other) volatile {
    __x = other.__x;
  }
  operator float() const { return Format::value(__x); }
  operator float() const volatile { return Format::value(__x); }
  SIM_INLINE Small operator-() const { return raw(__x ^ 0x8000); }
  SIM_INLINE Small operator+() const { return *this; }
  static SIM_INLINE Small raw(uint16_t bits) {
    Small made;
    made.__x = bits;
    return made;
  }
};

#define SIM_OPERATOR(op)                                                       \
  template <class F> SIM_INLINE Small<F> operator op(Small<F> a, Small<F> b) { \
    return Small<F>(static_cast<float>(a) op static_cast<float>(b));           \
  }                                                                            \
  template <class F> SIM_INLINE Small<F>& operator op##=(Small<F>& a, Small<F> b) { return a = a op b; }
SIM_OPERATOR(+)
SIM_OPERATOR(-)
SIM_OPERATOR(*)
SIM_OPERATOR(/)
#undef SIM_OPERATOR
#define SIM_COMPARISON(op)                                                 \
  template <class F> SIM_INLINE bool operator op(Small<F> a, Small<F> b) { \
    return static_cast<float>(a) op static_cast<float>(b);                 \
  }
SIM_COMPARISON(<)
SIM_COMPARISON(>)
SIM_COMPARISON(<=)
SIM_COMPARISON(>=)
SIM_COMPARISON(==)
SIM_COMPARISON(!=)
#undef SIM_COMPARISON

}  // namespace sim

using __half = sim::Small<sim::HalfFormat>;
using half = __half;
using __nv_bfloat16 = sim::Small<sim::Bfloat16Format>;
using nv_bfloat16 = __nv_bfloat16;

// A type, pairs of it, and its functions.
#define SIM_SMALL(type, pair, make, from_float, to_float, as_ushort, as_short, from_ushort, from_short)      \
  struct alignas(4) pair {                                                                                   \
    type x, y;                                                                                               \
    pair() = default;                                                                                        \
    pair(type x, type y) : x(x), y(y) {}                                                                     \
  };                                                                                                         \
  SIM_INLINE pair make(type x, type y) { return pair(x, y); }                                                \
  SIM_INLINE type from_float(float value) { return type(value); }                                            \
  SIM_INLINE type from_float##_rn(float value) { return type(value); }                                       \
  SIM_INLINE float to_float(type value) { return value; }                                                    \
  SIM_INLINE unsigned short as_ushort(type value) { return value.__x; }                                      \
  SIM_INLINE short as_short(type value) { return static_cast<short>(value.__x); }                            \
  SIM_INLINE type from_ushort(unsigned short bits) { return type::raw(bits); }                               \
  SIM_INLINE type from_short(short bits) { return type::raw(static_cast<unsigned short>(bits)); }            \
  SIM_INLINE type __hadd(type a, type b) { return a + b; }                                                   \
  SIM_INLINE type __hsub(type a, type b) { return a - b; }                                                   \
  SIM_INLINE type __hmul(type a, type b) { return a * b; }                                                   \
  SIM_INLINE type __hdiv(type a, type b) { return a / b; }                                                   \
  SIM_INLINE type __hneg(type a) { return -a; }                                                              \
  SIM_INLINE type __habs(type a) { return type::raw(a.__x & 0x7fff); }                                       \
  SIM_INLINE type __hfma(type a, type b, type c) {                                                           \
    return type(static_cast<float>(static_cast<double>(float(a)) * float(b) + float(c)));                    \
  }                                                                                                          \
  SIM_INLINE type __hmax(type a, type b) { return a != a ? b : b != b || a > b ? a : b; }                    \
  SIM_INLINE type __hmin(type a, type b) { return a != a ? b : b != b || a < b ? a : b; }                    \
  SIM_INLINE bool __hgt(type a, type b) { return a > b; }                                                    \
  SIM_INLINE bool __hlt(type a, type b) { return a < b; }                                                    \
  SIM_INLINE bool __hge(type a, type b) { return a >= b; }                                                   \
  SIM_INLINE bool __hle(type a, type b) { return a <= b; }                                                   \
  SIM_INLINE bool __heq(type a, type b) { return a == b; }                                                   \
  SIM_INLINE bool __hne(type a, type b) { return a != b; }                                                   \
  SIM_INLINE bool __hisnan(type a) { return a != a; }                                                        \
  SIM_INLINE bool __hisinf(type a) { return isinf(float(a)); }                                               \
  SIM_INLINE bool isinf(type a) { return isinf(float(a)); }                                                  \
  SIM_INLINE pair __hadd2(pair a, pair b) { return {a.x + b.x, a.y + b.y}; }                                 \
  SIM_INLINE pair __hsub2(pair a, pair b) { return {a.x - b.x, a.y - b.y}; }                                 \
  SIM_INLINE pair __hmul2(pair a, pair b) { return {a.x * b.x, a.y * b.y}; }                                 \
  SIM_INLINE pair __hmax2(pair a, pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                   \
  SIM_INLINE pair __hmin2(pair a, pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                   \
  SIM_INLINE pair __hfma2(pair a, pair b, pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  SIM_INLINE pair operator+(pair a, pair b) { return __hadd2(a, b); }                                        \
  SIM_INLINE pair operator-(pair a, pair b) { return __hsub2(a, b); }                                        \
  SIM_INLINE pair operator*(pair a, pair b) { return __hmul2(a, b); }                                        \
  SIM_INLINE type hexp(type a) { return type(expf(a)); }                                                     \
  SIM_INLINE type hexp2(type a) { return type(exp2f(a)); }                                                   \
  SIM_INLINE type hexp10(type a) { return type(powf(10.0f, a)); }                                            \
  SIM_INLINE type hlog(type a) { return type(logf(a)); }                                                     \
  SIM_INLINE type hlog2(type a) { return type(log2f(a)); }                                                   \
  SIM_INLINE type hlog10(type a) { return type(log10f(a)); }                                                 \
  SIM_INLINE type hsqrt(type a) { return type(sqrtf(a)); }                                                   \
  SIM_INLINE type hrsqrt(type a) { return type(1.0f / sqrtf(a)); }                                           \
  SIM_INLINE type hrcp(type a) { return type(1.0f / float(a)); }                                             \
  SIM_INLINE type hsin(type a) { return type(sinf(a)); }                                                     \
  SIM_INLINE type hcos(type a) { return type(cosf(a)); }                                                     \
  SIM_INLINE type htanh(type a) { return type(tanhf(a)); }                                                   \
  SIM_INLINE type hceil(type a) { return type(ceilf(a)); }                                                   \
  SIM_INLINE type hfloor(type a) { return type(floorf(a)); }                                                 \
  SIM_INLINE type hrint(type a) { return type(rintf(a)); }                                                   \
  SIM_INLINE type htrunc(type a) { return type(truncf(a)); }

SIM_SMALL(__half, half2, make_half2, __float2half, __half2float, __half_as_ushort, __half_as_short, __ushort_as_half,
          __short_as_half)
SIM_SMALL(__nv_bfloat16, nv_bfloat162, sim_make_pair, __float2bfloat16, __bfloat162float, __bfloat16_as_ushort,
          __bfloat16_as_short, __ushort_as_bfloat16, __short_as_bfloat16)
#undef SIM_SMALL
using __half2 = half2;
using __nv_bfloat162 = nv_bfloat162;

SIM_INLINE half2 __halves2half2(half x, half y) { return {x, y}; }
SIM_INLINE unsigned __hgt2_mask(half2 a, half2 b) { return (a.x > b.x ? 0xffff : 0) | (a.y > b.y ? 0xffff0000 : 0); }
SIM_INLINE unsigned __hlt2_mask(half2 a, half2 b) { return __hgt2_mask(b, a); }
SIM_INLINE half2 __half2half2(half x) { return {x, x}; }
SIM_INLINE half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
SIM_INLINE half2 __floats2half2_rn(float x, float y) { return {half(x), half(y)}; }
SIM_INLINE half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
SIM_INLINE float2 __half22float2(half2 v) { return {v.x, v.y}; }
SIM_INLINE half __low2half(half2 v) { return v.x; }
SIM_INLINE half __high2half(half2 v) { return v.y; }
SIM_INLINE nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {nv_bfloat16(x), nv_bfloat16(y)}; }
SIM_INLINE nv_bfloat162 __float22bfloat162_rn(float2 v) { return {nv_bfloat16(v.x), nv_bfloat16(v.y)}; }
SIM_INLINE float2 __bfloat1622float2(nv_bfloat162 v) { return {v.x, v.y}; }
