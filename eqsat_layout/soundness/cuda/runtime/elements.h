// What matrices are made of.
#pragma once

namespace sim {

enum class Element { f16, bf16, tf32, s8, u8 };

}  // namespace sim
