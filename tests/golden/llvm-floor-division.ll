define void @kernel(ptr %buffers, ptr %scalars) #0 {
entry:
  %p0.at = getelementptr ptr, ptr %buffers, i64 0
  %p0 = load ptr, ptr %p0.at, align 8
  %p1.at = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %p1.at, align 8
  %p2.at = getelementptr ptr, ptr %buffers, i64 2
  %p2 = load ptr, ptr %p2.at, align 8
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %entry ], [ %i3.next, %next3 ]
  %i3.in = icmp slt i64 %i3, 64
  br i1 %i3.in, label %body3, label %done3, !prof !0
body3:
  %v0 = getelementptr i32, ptr %p0, i64 %i3
  %v1 = getelementptr i32, ptr %p1, i64 %i3
  %v2 = load i32, ptr %v1, align 4
  %v3 = getelementptr i32, ptr %p2, i64 %i3
  %v4 = load i32, ptr %v3, align 4
  %v5 = icmp eq i32 %v4, 0
  %v6 = icmp eq i32 %v4, -1
  %v7 = or i1 %v5, %v6
  %v8 = select i1 %v7, i32 1, i32 %v4
  %v9 = sdiv i32 %v2, %v8
  %v10 = srem i32 %v2, %v8
  %v11 = icmp ne i32 %v10, 0
  %v12 = xor i32 %v10, %v8
  %v13 = icmp slt i32 %v12, 0
  %v14 = and i1 %v11, %v13
  %v15 = zext i1 %v14 to i32
  %v16 = sub i32 %v9, %v15
  %v17 = sub i32 0, %v2
  %v18 = select i1 %v6, i32 %v17, i32 %v16
  %v19 = select i1 %v5, i32 0, i32 %v18
  %v20 = srem i32 %v2, 8
  %v21 = icmp ne i32 %v20, 0
  %v22 = xor i32 %v20, 8
  %v23 = icmp slt i32 %v22, 0
  %v24 = and i1 %v21, %v23
  %v25 = add i32 %v20, 8
  %v26 = select i1 %v24, i32 %v25, i32 %v20
  %v27 = sub i32 %v19, %v26
  store i32 %v27, ptr %v0, align 4
  br label %next3
next3:
  %i3.next = add i64 %i3, 1
  br label %loop3
done3:
  ret void
}

!0 = !{!"branch_weights", i32 64, i32 1}
attributes #0 = { nounwind "no-builtins" }
