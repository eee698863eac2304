define void @kernel(ptr %buffers, ptr %scalars) #0 {
entry:
  %p0.at = getelementptr ptr, ptr %buffers, i64 0
  %p0 = load ptr, ptr %p0.at, align 8
  %p1.at = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %p1.at, align 8
  br label %loop3
loop3:
  %i3 = phi i64 [ 0, %entry ], [ %i3.next, %next3 ]
  %a3.0 = phi float [ 0x0000000000000000, %entry ], [ %a8.0, %next3 ]
  %i3.in = icmp slt i64 %i3, 5
  br i1 %i3.in, label %body3, label %done3, !prof !0
body3:
  br label %loop8
loop8:
  %i8 = phi i64 [ 0, %body3 ], [ %i8.next, %next8 ]
  %a8.0 = phi float [ 0x0000000000000000, %body3 ], [ %v4, %next8 ]
  %i8.in = icmp slt i64 %i8, 7
  br i1 %i8.in, label %body8, label %done8, !prof !1
body8:
  %v0 = mul i64 %i3, 7
  %v1 = add i64 %v0, %i8
  %v2 = getelementptr float, ptr %p1, i64 %v1
  %v3 = load float, ptr %v2, align 4
  %v4 = fadd float %a8.0, %v3
  br label %next8
next8:
  %i8.next = add i64 %i8, 1
  br label %loop8
done8:
  %v5 = getelementptr float, ptr %p0, i64 %i3
  store float %a8.0, ptr %v5, align 4
  br label %next3
next3:
  %i3.next = add i64 %i3, 1
  br label %loop3
done3:
  ret void
}

!0 = !{!"branch_weights", i32 5, i32 1}
!1 = !{!"branch_weights", i32 7, i32 1}
attributes #0 = { nounwind "no-builtins" }
