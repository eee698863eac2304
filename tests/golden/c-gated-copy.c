// stores signed integers
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef _Bool b1;

void kernel(void *const *buffers, const i64 *scalars) {
  i16 *const p0 = (i16 *)buffers[0];
  i16 *const p1 = (i16 *)buffers[1];
  const i64 s2 = scalars[2];
  u8 *const p3 = (u8 *)buffers[3];
  for (i64 k3 = 0; k3 < 37l; k3++) {
    const i64 v8 = k3 + s2;
    const b1 v12 = v8 >= 0l;
    const b1 v13 = v8 < 37l;
    const b1 v14 = v12 & v13;
    const i16 v15 = v14 ? p1[v8] : 7;
    const b1 v18 = p3[k3] != 0;
    if (v18) p0[k3] = v15;
  }
}
