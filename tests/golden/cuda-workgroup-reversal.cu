// launch {"arguments": ["written", "buffer"], "groups": [4], "lanes": [8], "local": 32, "private": 0}
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef bool b1;

#ifdef __cplusplus
extern "C"
#endif
__global__ void __launch_bounds__(8) entry(u8 *m0, u8 *m1) {
  extern __shared__ __align__(16) u8 shared[];
  i32 *const p0 = (i32 *)m0;
  i32 *const p1 = (i32 *)m1;
  i32 *const r2 = (i32 *)(shared + 0);
  const i64 k4 = blockIdx.x;
  const i64 v6 = k4 * 8l;
  const i64 k7 = threadIdx.x;
  const i64 v8 = v6 + k7;
  const i32 v14 = p1[v8];
  r2[k7] = v14;
  __syncthreads();
  const i64 v19 = 7l - k7;
  const i32 v21 = r2[v19];
  p0[v8] = v21;
}
