define void @kernel(ptr %buffers, ptr %scalars) #0 {
entry:
  %p0.at = getelementptr ptr, ptr %buffers, i64 0
  %p0 = load ptr, ptr %p0.at, align 8
  %p1.at = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %p1.at, align 8
  %s2.at = getelementptr i64, ptr %scalars, i64 2
  %s2 = load i64, ptr %s2.at, align 8
  %p3.at = getelementptr ptr, ptr %buffers, i64 3
  %p3 = load ptr, ptr %p3.at, align 8
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %entry ], [ %i3.next, %next3 ]
  %i3.in = icmp slt i64 %i3, 37
  br i1 %i3.in, label %body3, label %done3, !prof !0
body3:
  %v0 = getelementptr i16, ptr %p0, i64 %i3
  %v1 = add i64 %i3, %s2
  %v2 = getelementptr i16, ptr %p1, i64 %v1
  %v3 = icmp sge i64 %v1, 0
  %v4 = icmp slt i64 %v1, 37
  %v5 = and i1 %v3, %v4
  br i1 %v5, label %load15, label %loaded15
load15:
  %v6 = load i16, ptr %v2, align 2
  br label %loaded15
loaded15:
  %v7 = phi i16 [ %v6, %load15 ], [ 7, %body3 ]
  %v8 = getelementptr i8, ptr %p3, i64 %i3
  %v9 = load i8, ptr %v8, align 1
  %v10 = icmp ne i8 %v9, 0
  br i1 %v10, label %store19, label %stored19
store19:
  store i16 %v7, ptr %v0, align 2
  br label %stored19
stored19:
  br label %next3
next3:
  %i3.next = add i64 %i3, 1
  br label %loop3
done3:
  ret void
}

!0 = !{!"branch_weights", i32 37, i32 1}
attributes #0 = { nounwind "no-builtins" }
