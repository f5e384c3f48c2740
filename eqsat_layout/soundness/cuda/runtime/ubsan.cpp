// Answers of -fsanitize=bounds,integer-divide-by-zero,signed-integer-overflow: an index that leaves a local array,
// divisions of integers that C++ does not define. Sums and products wrap around: what is said of those is not heard.
#include "state.h"

namespace {

struct Place {
  const char* file;
  uint32_t line, column;
};

}  // namespace

extern "C" void __ubsan_handle_out_of_bounds(Place* place, uintptr_t index) {
  sim::fault("range", static_cast<int>(place->line), "index %ld leaves its array", static_cast<long>(index));
}

extern "C" void __ubsan_handle_divrem_overflow(Place* place, uintptr_t, uintptr_t divisor) {
  const char* what = divisor ? "the least integer divided by -1" : "an integer divided by zero";
  sim::fault("trap", static_cast<int>(place->line), "%s", what);
}

extern "C" void __ubsan_handle_add_overflow(void*, uintptr_t, uintptr_t) {}
extern "C" void __ubsan_handle_sub_overflow(void*, uintptr_t, uintptr_t) {}
extern "C" void __ubsan_handle_mul_overflow(void*, uintptr_t, uintptr_t) {}
extern "C" void __ubsan_handle_negate_overflow(void*, uintptr_t) {}
