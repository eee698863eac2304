// launch {"arguments": ["buffer", "buffer"], "groups": [4], "lanes": [8]}
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef bool b1;

__kernel void entry(__global u8 *m0, i64 o0, __global u8 *m1, i64 o1) {
  __global i32 *const p0 = (__global i32 *)(m0 + o0);
  __global i32 *const p1 = (__global i32 *)(m1 + o1);
  __local i32 r2[8];
  const i64 k4 = get_group_id(0);
  const i64 v6 = k4 * 8l;
  const i64 k7 = get_local_id(0);
  const i64 v8 = v6 + k7;
  const i32 v14 = p1[v8];
  r2[k7] = v14;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  const i64 v19 = 7l - k7;
  const i32 v21 = r2[v19];
  p0[v8] = v21;
}
