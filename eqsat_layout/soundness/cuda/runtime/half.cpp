// Rounding to half and bfloat16; the value of each half as a table, since not all processors have the instruction.
#include "numbers.h"

namespace {

float values[65536];

struct Filled {
  Filled() {
    for (int bits = 0; bits < 65536; bits++) {
      int exponent = bits >> 10 & 31, fraction = bits & 1023;
      float size = exponent == 31 ? (fraction ? __builtin_nanf("") : __builtin_inff())
                   : exponent     ? __builtin_ldexpf(1024.0f + static_cast<float>(fraction), exponent - 25)
                                  : __builtin_ldexpf(static_cast<float>(fraction), -24);
      values[bits] = bits >> 15 ? -size : size;
    }
  }
} filled;

}  // namespace

namespace sim {

float half_value(uint16_t bits) { return values[bits]; }

uint16_t half_bits(float value) {
  uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return 0x7fff;
  if (bits >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // from 65520 on
  if (bits < 0x38800000) {  // below the least normal half the last place is 2**-24: adding a half rounds there
    float shifted = float_of(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - 0x3f000000));
  }
  bits += 0xc8000fff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | bits >> 13);
}

uint16_t bfloat16_bits(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace sim
