// Shared memory, atomics and fences, as kernels name them. What happens in memory happens in the runtime, which watches it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "inline.h"

namespace sim {

char* shared_memory();
char* static_shared(int id, size_t bytes, size_t alignment);
void read_atomic(const void* from, void* to, size_t size);
void write_atomic(void* to, const void* from, size_t size);
void fence();
unsigned shared_offset(int line, const void* address);
void trap(int line, const char* what);
void* copy_bytes(void* to, const void* from, size_t size);
void* set_bytes(void* to, int value, size_t size);

// `__shared__ alignas(64) float x[4]` becomes `float (&x)[4] = shared<float[4], 64>(id)`.
template <class T, size_t alignment> SIM_INLINE T& shared(int id) {
  return *reinterpret_cast<T*>(static_shared(id, sizeof(T), alignment));
}

template <class T, class Change> SIM_INLINE T changed(T* at, Change change) {
  T old;
  read_atomic(at, &old, sizeof old);
  T made = change(old);
  write_atomic(at, &made, sizeof made);
  return old;
}

template <class T> struct Same {
  using type = T;
};

}  // namespace sim

#define SIM_ATOMIC(name, expression)                                      \
  template <class T> SIM_INLINE T name(T* at, typename sim::Same<T>::type v) { \
    return sim::changed(at, [v](T old) -> T { return expression; });      \
  }
SIM_ATOMIC(atomicAdd, old + v)
SIM_ATOMIC(atomicSub, old - v)
SIM_ATOMIC(atomicMin, v < old ? v : old)
SIM_ATOMIC(atomicMax, v > old ? v : old)
SIM_ATOMIC(atomicExch, v)
SIM_ATOMIC(atomicAnd, old & v)
SIM_ATOMIC(atomicOr, old | v)
SIM_ATOMIC(atomicXor, old ^ v)
SIM_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
SIM_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef SIM_ATOMIC
SIM_INLINE half2 atomicAdd(half2* at, half2 v) {
  return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y)};
}
SIM_INLINE nv_bfloat162 atomicAdd(nv_bfloat162* at, nv_bfloat162 v) {
  return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y)};
}
template <class T> SIM_INLINE T atomicCAS(T* at, typename sim::Same<T>::type expected, typename sim::Same<T>::type v) {
  return sim::changed(at, [=](T old) -> T { return old == expected ? v : old; });
}

template <class T> SIM_INLINE T __ldg(const T* from) { return *from; }
template <class T> SIM_INLINE T __ldcs(const T* from) { return *from; }
template <class T> SIM_INLINE T __ldcg(const T* from) { return *from; }
template <class T> SIM_INLINE void __stcs(T* to, T value) { *to = value; }
template <class T> SIM_INLINE void __stcg(T* to, T value) { *to = value; }
SIM_INLINE void __threadfence() { sim::fence(); }
SIM_INLINE void __threadfence_block() {}
SIM_INLINE void __threadfence_system() { sim::fence(); }
#define __cvta_generic_to_shared(address) \
  static_cast<size_t>(sim::shared_offset(__LINE__, reinterpret_cast<const void*>(address)))
#define __trap() sim::trap(__LINE__, "__trap()")
#define assert(condition) ((condition) ? (void)0 : sim::trap(__LINE__, "assert(" #condition ")"))
#define memcpy sim::copy_bytes
#define memset sim::set_bytes
