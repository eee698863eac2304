define void @kernel(ptr %buffers, ptr %scalars) #0 {
entry:
  %p0.at = getelementptr ptr, ptr %buffers, i64 0
  %p0 = load ptr, ptr %p0.at, align 8
  %p1.at = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %p1.at, align 8
  %r2 = alloca [1 x float], align 16
  store [1 x float] zeroinitializer, ptr %r2, align 4
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %entry ], [ %i3.next, %next3 ]
  %i3.in = icmp slt i64 %i3, 5
  br i1 %i3.in, label %body3, label %done3
body3:
  %v0 = getelementptr float, ptr %r2, i64 0
  store float 0x0000000000000000, ptr %v0, align 4
  %v1 = getelementptr float, ptr %r2, i64 0
  br label %loop8
loop8:
  %i8 = phi i64 [ 0, %body3 ], [ %i8.next, %next8 ]
  %i8.in = icmp slt i64 %i8, 7
  br i1 %i8.in, label %body8, label %done8
body8:
  %v2 = mul i64 %i3, 7
  %v3 = add i64 %v2, %i8
  %v4 = getelementptr float, ptr %p1, i64 %v3
  %v5 = load float, ptr %v4, align 4
  %v6 = load float, ptr %v1, align 4
  %v7 = fadd float %v6, %v5
  store float %v7, ptr %v1, align 4
  br label %next8
next8:
  %i8.next = add i64 %i8, 1
  br label %loop8
done8:
  %v8 = getelementptr float, ptr %r2, i64 0
  %v9 = load float, ptr %v8, align 4
  %v10 = getelementptr float, ptr %p0, i64 %i3
  store float %v9, ptr %v10, align 4
  br label %next3
next3:
  %i3.next = add i64 %i3, 1
  br label %loop3
done3:
  ret void
}

attributes #0 = { nounwind "no-builtins" }
