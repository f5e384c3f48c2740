// Mathematical functions that CUDA has beside those of C. The fast ones are exact here: what rests on their errors fails
// on a card only.
#pragma once
#include <limits.h>
#include <math.h>
#include <stdint.h>

#define CUDART_INF_F HUGE_VALF
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF HUGE_VAL
#define CUDART_NAN __builtin_nan("")

template <class T, class U> inline std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U>, std::common_type_t<T, U>>
max(T a, U b) {
  using C = std::common_type_t<T, U>;
  if constexpr (std::is_floating_point_v<C>)
    return fmax(static_cast<C>(a), static_cast<C>(b));
  else
    return static_cast<C>(a) > static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}
template <class T, class U> inline std::enable_if_t<std::is_arithmetic_v<T> && std::is_arithmetic_v<U>, std::common_type_t<T, U>>
min(T a, U b) {
  using C = std::common_type_t<T, U>;
  if constexpr (std::is_floating_point_v<C>)
    return fmin(static_cast<C>(a), static_cast<C>(b));
  else
    return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(a) : static_cast<C>(b);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float exp10f(float x) { return powf(10.0f, x); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

template <class To, class From> inline To sim_same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To same;
  memcpy(&same, &value, sizeof same);
  return same;
}
inline int __float_as_int(float x) { return sim_same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return sim_same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return sim_same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return sim_same_bits<float>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
  return y;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned made = 0;
  for (int i = 0; i < 4; i++) made |= static_cast<unsigned>(both >> ((selector >> 4 * i & 7) * 8) & 0xff) << 8 * i;
  return made;
}

template <class A, class B> inline int sim_dp4a(unsigned a, unsigned b, int c) {
  for (int i = 0; i < 4; i++) c += static_cast<A>(a >> 8 * i) * static_cast<B>(b >> 8 * i);
  return c;
}
inline int __dp4a(int a, int b, int c) { return sim_dp4a<int8_t, int8_t>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return sim_dp4a<uint8_t, uint8_t>(a, b, c); }
