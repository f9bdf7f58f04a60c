# sum_1
# div mul
@launched(grid=lambda s0, s1: s0,
          warps=1,
          sizes=2,
          wide=lambda s0, s1: s0*s1 + s1 > 2146435071)
@triton.jit
def kernel_0_sum_div_mul(x_1_ptr, mul_0_ptr, s0, s1, wide: tl.constexpr):
    WIDE: tl.constexpr = tl.int64 if wide else tl.int32
    s0 = tl.full((), s0, WIDE)
    s1 = tl.full((), s1, WIDE)
    RBLOCK: tl.constexpr = 128
    x = tl.program_id(0).to(WIDE)
    lane = tl.arange(0, RBLOCK).to(WIDE)
    t0 = tl.full((), (s1), tl.int64)
    t1 = t0.to(tl.float32)
    sum0 = tl.full([RBLOCK], 0.0, tl.float32)
    for start in range(0, s1, RBLOCK):
        r = start + lane
        r_inside = r < s1
        t2 = tl.load(x_1_ptr + (r + s1*x), mask=r_inside)
        sum0 = sum0 + tl.where(r_inside, t2, 0.0)
    sum0 = tl.sum(sum0, 0)
    for start in range(0, s1, RBLOCK):
        r = start + lane
        r_inside = r < s1
        t3 = tl.load(x_1_ptr + (r + s1*x), mask=r_inside)
        t4 = device.quotient(t3, sum0)
        t5 = t4 * t1
        tl.store(mul_0_ptr + (r + s1*x), t5, mask=r_inside)
