// The value of each half: a table, since most processors that compile this lack the instruction.
#include <cmath>
#include <cstdint>

extern "C" {
float sim_half_values[65536];
}

namespace {

struct Filled {
  Filled() {
    for (int bits = 0; bits < 65536; bits++) {
      int exponent = bits >> 10 & 31, fraction = bits & 1023;
      float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? std::ldexp(1024.0f + static_cast<float>(fraction), exponent - 25)
                                  : std::ldexp(static_cast<float>(fraction), -24);
      sim_half_values[bits] = bits >> 15 ? -size : size;
    }
  }
} filled;

}  // namespace
