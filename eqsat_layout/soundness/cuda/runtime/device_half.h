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
  Small operator-() const { return raw(__x ^ 0x8000); }
  Small operator+() const { return *this; }
  static Small raw(uint16_t bits) {
    Small made;
    made.__x = bits;
    return made;
  }
};

#define SIM_OPERATOR(op)                                                                                       \
  template <class F> inline Small<F> operator op(Small<F> a, Small<F> b) {                                     \
    return Small<F>(static_cast<float>(a) op static_cast<float>(b));                                           \
  }                                                                                                            \
  template <class F> inline Small<F>& operator op##=(Small<F>& a, Small<F> b) { return a = a op b; }
SIM_OPERATOR(+)
SIM_OPERATOR(-)
SIM_OPERATOR(*)
SIM_OPERATOR(/)
#undef SIM_OPERATOR
#define SIM_COMPARISON(op)                                                     \
  template <class F> inline bool operator op(Small<F> a, Small<F> b) {         \
    return static_cast<float>(a) op static_cast<float>(b);                     \
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
#define SIM_SMALL(type, pair, make, from_float, to_float, as_ushort, as_short, from_ushort, from_short)    \
  struct alignas(4) pair {                                                                               \
    type x, y;                                                                                           \
    pair() = default;                                                                                    \
    pair(type x, type y) : x(x), y(y) {}                                                                 \
  };                                                                                                     \
  inline pair make(type x, type y) { return pair(x, y); }                                                \
  inline type from_float(float value) { return type(value); }                                            \
  inline type from_float##_rn(float value) { return type(value); }                                       \
  inline float to_float(type value) { return value; }                                                    \
  inline unsigned short as_ushort(type value) { return value.__x; }                                      \
  inline short as_short(type value) { return static_cast<short>(value.__x); }                            \
  inline type from_ushort(unsigned short bits) { return type::raw(bits); }                               \
  inline type from_short(short bits) { return type::raw(static_cast<unsigned short>(bits)); }            \
  inline type __hadd(type a, type b) { return a + b; }                                                   \
  inline type __hsub(type a, type b) { return a - b; }                                                   \
  inline type __hmul(type a, type b) { return a * b; }                                                   \
  inline type __hdiv(type a, type b) { return a / b; }                                                   \
  inline type __hneg(type a) { return -a; }                                                              \
  inline type __habs(type a) { return type::raw(a.__x & 0x7fff); }                                       \
  inline type __hfma(type a, type b, type c) {                                                           \
    return type(static_cast<float>(static_cast<double>(float(a)) * float(b) + float(c)));               \
  }                                                                                                      \
  inline type __hmax(type a, type b) { return a != a ? b : b != b || a > b ? a : b; }                    \
  inline type __hmin(type a, type b) { return a != a ? b : b != b || a < b ? a : b; }                    \
  inline bool __hgt(type a, type b) { return a > b; }                                                    \
  inline bool __hlt(type a, type b) { return a < b; }                                                    \
  inline bool __hge(type a, type b) { return a >= b; }                                                   \
  inline bool __hle(type a, type b) { return a <= b; }                                                   \
  inline bool __heq(type a, type b) { return a == b; }                                                   \
  inline bool __hne(type a, type b) { return a != b; }                                                   \
  inline bool __hisnan(type a) { return a != a; }                                                        \
  inline bool __hisinf(type a) { return isinf(float(a)); }                                               \
  inline bool isinf(type a) { return isinf(float(a)); }                                                  \
  inline pair __hadd2(pair a, pair b) { return {a.x + b.x, a.y + b.y}; }                                 \
  inline pair __hsub2(pair a, pair b) { return {a.x - b.x, a.y - b.y}; }                                 \
  inline pair __hmul2(pair a, pair b) { return {a.x * b.x, a.y * b.y}; }                                 \
  inline pair __hmax2(pair a, pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                   \
  inline pair __hmin2(pair a, pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }                   \
  inline pair __hfma2(pair a, pair b, pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  inline pair operator+(pair a, pair b) { return __hadd2(a, b); }                                        \
  inline pair operator-(pair a, pair b) { return __hsub2(a, b); }                                        \
  inline pair operator*(pair a, pair b) { return __hmul2(a, b); }                                        \
  inline type hexp(type a) { return type(expf(a)); }                                                     \
  inline type hexp2(type a) { return type(exp2f(a)); }                                                   \
  inline type hexp10(type a) { return type(powf(10.0f, a)); }                                            \
  inline type hlog(type a) { return type(logf(a)); }                                                     \
  inline type hlog2(type a) { return type(log2f(a)); }                                                   \
  inline type hlog10(type a) { return type(log10f(a)); }                                                 \
  inline type hsqrt(type a) { return type(sqrtf(a)); }                                                   \
  inline type hrsqrt(type a) { return type(1.0f / sqrtf(a)); }                                           \
  inline type hrcp(type a) { return type(1.0f / float(a)); }                                             \
  inline type hsin(type a) { return type(sinf(a)); }                                                     \
  inline type hcos(type a) { return type(cosf(a)); }                                                     \
  inline type htanh(type a) { return type(tanhf(a)); }                                                   \
  inline type hceil(type a) { return type(ceilf(a)); }                                                   \
  inline type hfloor(type a) { return type(floorf(a)); }                                                 \
  inline type hrint(type a) { return type(rintf(a)); }                                                   \
  inline type htrunc(type a) { return type(truncf(a)); }

SIM_SMALL(__half, half2, make_half2, __float2half, __half2float, __half_as_ushort, __half_as_short, __ushort_as_half,
          __short_as_half)
SIM_SMALL(__nv_bfloat16, nv_bfloat162, sim_make_pair, __float2bfloat16, __bfloat162float, __bfloat16_as_ushort,
          __bfloat16_as_short, __ushort_as_bfloat16, __short_as_bfloat16)
#undef SIM_SMALL
using __half2 = half2;
using __nv_bfloat162 = nv_bfloat162;

inline half2 __halves2half2(half x, half y) { return {x, y}; }
inline half2 __half2half2(half x) { return {x, x}; }
inline half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
inline half2 __floats2half2_rn(float x, float y) { return {half(x), half(y)}; }
inline half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
inline float2 __half22float2(half2 v) { return {v.x, v.y}; }
inline half __low2half(half2 v) { return v.x; }
inline half __high2half(half2 v) { return v.y; }
inline nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {nv_bfloat16(x), nv_bfloat16(y)}; }
inline nv_bfloat162 __float22bfloat162_rn(float2 v) { return {nv_bfloat16(v.x), nv_bfloat16(v.y)}; }
inline float2 __bfloat1622float2(nv_bfloat162 v) { return {v.x, v.y}; }
