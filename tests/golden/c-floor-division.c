// stores signed integers
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
typedef float f32; typedef double f64;
typedef _Bool b1;

static inline i32 idiv_i32(i32 x, i32 y) {
  if (y == 0) return 0;
  if (y == -1) return (i32)(0u - (u32)x);
  const i32 q = x / y, r = x % y;
  return r != 0 && (r ^ y) < 0 ? q - 1 : q;
}

static inline i32 mod_i32(i32 x, i32 y) {
  if (y == 0) return x;
  if (y == -1) return 0;
  const i32 r = x % y;
  return r != 0 && (r ^ y) < 0 ? r + y : r;
}

void kernel(void *const *buffers, const i64 *scalars) {
  i32 *const p0 = (i32 *)buffers[0];
  i32 *const p1 = (i32 *)buffers[1];
  i32 *const p2 = (i32 *)buffers[2];
  for (i64 k3 = 0; k3 < 64l; k3++) {
    const i32 v7 = p1[k3];
    const i32 v10 = p2[k3];
    const i32 v11 = idiv_i32(v7, v10);
    const i32 v13 = mod_i32(v7, 8);
    const i32 v14 = (i32)((u32)v11 - (u32)v13);
    p0[k3] = v14;
  }
}
