// launch {"arguments": ["buffer", "buffer"], "groups": [8], "lanes": []}
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef bool b1;

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void entry(__global u8 *m0, i64 o0, __global u8 *m1, i64 o1) {
  __global f32 *const p0 = (__global f32 *)(m0 + o0);
  __global f32 *const p1 = (__global f32 *)(m1 + o1);
  const i64 k4 = (u32)get_group_id(0);
  const i64 v6 = k4 * 4l;
  const i64 v13_0 = v6 + 0l;
  const i64 v13_1 = v6 + 1l;
  const i64 v13_2 = v6 + 2l;
  const i64 v13_3 = v6 + 3l;
  const float4 v17 = vload4(0, (__global float *)&p1[v13_0]);
  vstore4((float4)(v17.s0, v17.s1, v17.s2, v17.s3), 0, (__global float *)&p0[v13_0]);
}
