// Bits of floats, and rounding to half and bfloat16, which is the runtime's: inlined it would cost seconds of compile time.
#pragma once
#include <stdint.h>
#include <string.h>

#include "inline.h"

namespace sim {

SIM_INLINE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

SIM_INLINE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

float half_value(uint16_t bits);
uint16_t half_bits(float value);  // the nearest
uint16_t bfloat16_bits(float value);

}  // namespace sim
