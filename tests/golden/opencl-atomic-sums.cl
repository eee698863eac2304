// launch {"arguments": ["buffer", "buffer"], "groups": [8], "lanes": []}
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef bool b1;

static inline f32 reinterpret_u32_f32(u32 x) {
  union { u32 from; f32 to; } bits;
  bits.from = x;
  return bits.to;
}

static inline u32 reinterpret_f32_u32(f32 x) {
  union { f32 from; u32 to; } bits;
  bits.from = x;
  return bits.to;
}

static inline void atomic_add_global_f32(volatile __global u32 *at, f32 x) {
  u32 old = 0, seen;
  while ((seen = atomic_cmpxchg(at, old, reinterpret_f32_u32(reinterpret_u32_f32(old) + x))) != old) old = seen;
}

__kernel void entry(__global u8 *m0, i64 o0, __global u8 *m1, i64 o1) {
  __global f32 *const p0 = (__global f32 *)(m0 + o0);
  __global f32 *const p1 = (__global f32 *)(m1 + o1);
  const i64 k4 = get_group_id(0);
  const i64 v5 = k4 % 3l;
  const f32 v10 = p1[k4];
  atomic_add_global_f32((volatile __global u32 *)&p0[v5], v10);
}
