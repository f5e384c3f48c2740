// Rounding to half and bfloat16; the value of each half as a table, since not all processors have the instruction.
#include <cmath>
#include <cstdint>
#include <cstring>

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

namespace sim {

static uint32_t read_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

uint16_t half_bits(float value) {
  uint32_t bits = read_bits(value), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return 0x7fff;
  if (bits >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // from 65520 on
  if (bits < 0x38800000) {  // below the least normal half the last place is 2**-24: adding a half rounds there
    float shifted;
    memcpy(&shifted, &bits, 4);
    shifted += 0.5f;
    return static_cast<uint16_t>(sign | (read_bits(shifted) - 0x3f000000));
  }
  bits += 0xc8000fff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | bits >> 13);
}

uint16_t bfloat16_bits(float value) {
  uint32_t bits = read_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace sim
