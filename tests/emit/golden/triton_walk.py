# _to_copy_4 _to_copy_6 mul_3 sum_1
# _to_copy_4 _to_copy_6 mul_3 _to_copy_5 sub_1 mul_2 mul_5 sum_2
# div _to_copy_4 _to_copy_6 mul_3 mul_4 sub_2 _to_copy_5 sub_1 mul_2 mul_6 sub_3 mul_7 _to_copy_8
# _to_copy_4 _to_copy_5 sub_1 mul_2 mul_8 sum_3
# _to_copy_4 sum_4
@launched(grid=lambda: 256, warps=8)
@triton.jit
def kernel_0__to_copy_mul_sum_sub(tangents_1_ptr, primals_2_ptr, primals_1_ptr, _to_copy_2_ptr, _to_copy_3_ptr, _to_copy_8_ptr, sum_3_part_ptr, sum_4_part_ptr):
    XBLOCK: tl.constexpr = 4
    RBLOCK: tl.constexpr = 1024
    lane = tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    chunk = tl.program_id(0)
    t0 = tl.load(primals_2_ptr + r).to(tl.float32)
    sum0 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    sum1 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(0, 16, XBLOCK, num_stages=3):
        x = 16*chunk + start + lane
        t1 = tl.load(_to_copy_2_ptr + x).to(tl.float32)
        t2 = tl.load(_to_copy_3_ptr + x).to(tl.float32)
        t3 = device.rounded(t2 * 0.0009765625, tl.bfloat16)
        t4 = tl.load(tangents_1_ptr + (r + 1024*x)).to(tl.float32)
        t5 = t4 * t0
        t6 = tl.load(primals_1_ptr + (r + 1024*x)).to(tl.float32)
        t7 = t6 - t1
        t8 = t7 * t2
        t9 = t5 * t8
        t10 = t4 * t8
        sum0 = sum0 + t10
        sum1 = sum1 + t4
        sum2 = tl.sum(t5, 1, keep_dims=True)
        sum3 = tl.sum(t9, 1, keep_dims=True)
        t11 = t5 * 1024.0
        t12 = t11 - sum2
        t13 = t8 * sum3
        t14 = t12 - t13
        t15 = t3 * t14
        t16 = device.rounded(t15, tl.bfloat16)
        tl.store(_to_copy_8_ptr + (r + 1024*x), t16)
    sum0 = tl.sum(sum0, 0, keep_dims=True)
    sum1 = tl.sum(sum1, 0, keep_dims=True)
    tl.store(sum_3_part_ptr + (1024*chunk + r), sum0)
    tl.store(sum_4_part_ptr + (1024*chunk + r), sum1)
