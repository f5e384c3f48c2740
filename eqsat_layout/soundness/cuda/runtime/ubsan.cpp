// Answers of -fsanitize=bounds,integer-divide-by-zero: an index that leaves a local array, a division by zero.
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

extern "C" void __ubsan_handle_divrem_overflow(Place* place, uintptr_t, uintptr_t) {
  sim::fault("trap", static_cast<int>(place->line), "an integer divided by zero");
}
