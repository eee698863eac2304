// launch {"arguments": ["written", "buffer"], "groups": [], "lanes": [], "local": 0, "private": 4}
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef bool b1;

#ifdef __cplusplus
extern "C"
#endif
__global__ void __launch_bounds__(1) entry(u8 *m0, u8 *m1) {
  f32 *const p0 = (f32 *)m0;
  f32 *const p1 = (f32 *)m1;
  f32 r2[1] = {0};
  for (i64 k3 = 0; k3 < 5l; k3++) {
    r2[0l] = 0.0f;
    for (i64 k8 = 0; k8 < 7l; k8++) {
      const i64 v9 = k3 * 7l;
      const i64 v10 = v9 + k8;
      const f32 v12 = p1[v10];
      const f32 v13 = r2[0l];
      const f32 v14 = v13 + v12;
      r2[0l] = v14;
    }
    const f32 v19 = r2[0l];
    p0[k3] = v19;
  }
}
