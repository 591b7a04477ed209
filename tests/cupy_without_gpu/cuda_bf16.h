// CUDA's bfloat16, for CuPy's header.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

class __nv_bfloat16 {
 public:
  unsigned short bits;
  __nv_bfloat16() : bits(0) {}
  __nv_bfloat16(float x) {
    uint32_t wide;
    memcpy(&wide, &x, 4);
    bits = x != x ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
  }
  operator float() const {
    uint32_t wide = uint32_t(bits) << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
  }
};
static unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
static __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 x;
  x.bits = bits;
  return x;
}
static int __hisnan(__nv_bfloat16 x) { return std::isnan(float(x)); }
static int __hisinf(__nv_bfloat16 x) { return std::isinf(float(x)); }
