// Mathematical functions, without the header of C++, which takes most of the time of compiling a kernel. The fast ones
// are exact here: what rests on their errors fails on a card only.
#pragma once
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "inline.h"

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_huge_val()
#define HUGE_VALF __builtin_huge_valf()
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")

#define SIM_UNARY(name)                                               \
  extern "C" double name(double);                                     \
  extern "C" float name##f(float);                                    \
  SIM_INLINE float name(float x) { return name##f(x); }               \
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>> \
  SIM_INLINE double name(T x) {                                       \
    return name(static_cast<double>(x));                              \
  }
SIM_UNARY(exp) SIM_UNARY(exp2) SIM_UNARY(expm1) SIM_UNARY(log) SIM_UNARY(log2) SIM_UNARY(log10) SIM_UNARY(log1p)
SIM_UNARY(sqrt) SIM_UNARY(cbrt) SIM_UNARY(sin) SIM_UNARY(cos) SIM_UNARY(tan) SIM_UNARY(sinh) SIM_UNARY(cosh)
SIM_UNARY(tanh) SIM_UNARY(asin) SIM_UNARY(acos) SIM_UNARY(atan) SIM_UNARY(asinh) SIM_UNARY(acosh) SIM_UNARY(atanh)
SIM_UNARY(erf) SIM_UNARY(erfc) SIM_UNARY(tgamma) SIM_UNARY(lgamma) SIM_UNARY(floor) SIM_UNARY(ceil) SIM_UNARY(trunc)
SIM_UNARY(round) SIM_UNARY(rint) SIM_UNARY(nearbyint) SIM_UNARY(fabs)
#undef SIM_UNARY
#define SIM_BINARY(name)                                                                                \
  extern "C" double name(double, double);                                                               \
  extern "C" float name##f(float, float);                                                               \
  SIM_INLINE float name(float x, float y) { return name##f(x, y); }                                     \
  template <class T, class U, class = std::enable_if_t<!std::is_same_v<T, U> || std::is_integral_v<T>>> \
  SIM_INLINE double name(T x, U y) {                                                                    \
    return name(static_cast<double>(x), static_cast<double>(y));                                        \
  }
SIM_BINARY(pow) SIM_BINARY(fmod) SIM_BINARY(fmax) SIM_BINARY(fmin) SIM_BINARY(atan2) SIM_BINARY(hypot)
SIM_BINARY(copysign) SIM_BINARY(remainder) SIM_BINARY(nextafter)
#undef SIM_BINARY
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
SIM_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" int abs(int);
SIM_INLINE long abs(long x) { return x < 0 ? -x : x; }
SIM_INLINE long long abs(long long x) { return x < 0 ? -x : x; }
SIM_INLINE float abs(float x) { return fabsf(x); }
SIM_INLINE double abs(double x) { return fabs(x); }
template <class T> SIM_INLINE bool isnan(T x) { return x != x; }
SIM_INLINE bool isinf(float x) { return __builtin_isinf(x); }
SIM_INLINE bool isinf(double x) { return __builtin_isinf(x); }
SIM_INLINE bool isfinite(float x) { return __builtin_isfinite(x); }
SIM_INLINE bool isfinite(double x) { return __builtin_isfinite(x); }

template <class T, class U>
SIM_INLINE std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U>, std::common_type_t<T, U>>
max(T a, U b) {
  using C = std::common_type_t<T, U>;
  if constexpr (std::is_floating_point_v<C>)
    return fmax(static_cast<C>(a), static_cast<C>(b));
  else
    return static_cast<C>(a) > static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
template <class T, class U>
SIM_INLINE std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U>, std::common_type_t<T, U>>
min(T a, U b) {
  using C = std::common_type_t<T, U>;
  if constexpr (std::is_floating_point_v<C>)
    return fmin(static_cast<C>(a), static_cast<C>(b));
  else
    return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}

SIM_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
SIM_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
SIM_INLINE float rsqrt(float x) { return rsqrtf(x); }
SIM_INLINE float exp10f(float x) { return powf(10.0f, x); }

SIM_INLINE float __expf(float x) { return expf(x); }
SIM_INLINE float __exp10f(float x) { return exp10f(x); }
SIM_INLINE float __logf(float x) { return logf(x); }
SIM_INLINE float __log2f(float x) { return log2f(x); }
SIM_INLINE float __log10f(float x) { return log10f(x); }
SIM_INLINE float __sinf(float x) { return sinf(x); }
SIM_INLINE float __cosf(float x) { return cosf(x); }
SIM_INLINE float __tanf(float x) { return tanf(x); }
SIM_INLINE float __powf(float x, float y) { return powf(x, y); }
SIM_INLINE float __fdividef(float x, float y) { return x / y; }
SIM_INLINE float __frcp_rn(float x) { return 1.0f / x; }
SIM_INLINE float __fsub_rn(float a, float b) { return a - b; }
SIM_INLINE double __dsub_rn(double a, double b) { return a - b; }
SIM_INLINE double __dadd_rn(double a, double b) { return a + b; }
SIM_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
SIM_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }
SIM_INLINE float __fadd_rn(float x, float y) { return x + y; }
SIM_INLINE float __fmul_rn(float x, float y) { return x * y; }
SIM_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
SIM_INLINE float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
SIM_INLINE int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
SIM_INLINE int __float2int_rz(float x) { return static_cast<int>(x); }
SIM_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }

template <class To, class From> SIM_INLINE To sim_same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To same;
  memcpy(&same, &value, sizeof same);
  return same;
}
SIM_INLINE int __float_as_int(float x) { return sim_same_bits<int>(x); }
SIM_INLINE unsigned __float_as_uint(float x) { return sim_same_bits<unsigned>(x); }
SIM_INLINE float __int_as_float(int x) { return sim_same_bits<float>(x); }
SIM_INLINE float __uint_as_float(unsigned x) { return sim_same_bits<float>(x); }
SIM_INLINE double __longlong_as_double(long long x) { return sim_same_bits<double>(x); }

SIM_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
SIM_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIM_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
SIM_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
SIM_INLINE int __ffs(int x) { return __builtin_ffs(x); }
SIM_INLINE int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
SIM_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
SIM_INLINE unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
  return y;
}
SIM_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned made = 0;
  for (int i = 0; i < 4; i++) made |= static_cast<unsigned>(both >> ((selector >> 4 * i & 7) * 8) & 0xff) << 8 * i;
  return made;
}

template <class A, class B> SIM_INLINE int sim_dp4a(unsigned a, unsigned b, int c) {
  for (int i = 0; i < 4; i++) c += static_cast<A>(a >> 8 * i) * static_cast<B>(b >> 8 * i);
  return c;
}
SIM_INLINE int __dp4a(int a, int b, int c) { return sim_dp4a<int8_t, int8_t>(a, b, c); }
SIM_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return sim_dp4a<uint8_t, uint8_t>(a, b, c); }
