def kernel_0_mul_sum_sub_div(tangents_1, primals_2, primals_1, getitem_1, rsqrt_0, mul_7):
    sum_1 = empty(4, dtype=torch.float32)
    sum_2 = empty(4, dtype=torch.float32)
    for i0 in range(4):
        sum_1[i0] = 0
        for r0 in range(8):
            sum_1[i0] = add(sum_1[i0], tangents_1[8*i0 + r0] * primals_2[r0])
    for i0 in range(4):
        sum_2[i0] = 0
        for r0 in range(8):
            sum_2[i0] = add(sum_2[i0], (tangents_1[8*i0 + r0] * primals_2[r0]) * ((primals_1[8*i0 + r0] - getitem_1[i0]) * rsqrt_0[i0]))
    for i0 in range(4):
        for r0 in range(8):
            t2 = rsqrt_0[i0]
            mul_7[8*i0 + r0] = (t2 / 8) * ((((tangents_1[8*i0 + r0] * primals_2[r0]) * 8) - sum_1[i0]) - (((primals_1[8*i0 + r0] - getitem_1[i0]) * t2) * sum_2[i0]))

def kernel_1_sub_mul_sum(tangents_1, primals_1, getitem_1, rsqrt_0, sum_3, sum_4):
    for i0 in range(8):
        sum_3[i0] = 0
        for r0 in range(4):
            sum_3[i0] = add(sum_3[i0], tangents_1[i0 + 8*r0] * ((primals_1[i0 + 8*r0] - getitem_1[r0]) * rsqrt_0[r0]))
    for i0 in range(8):
        sum_4[i0] = 0
        for r0 in range(4):
            sum_4[i0] = add(sum_4[i0], tangents_1[i0 + 8*r0])

def run(primals_1, primals_2, getitem_1, rsqrt_0, tangents_1):
    kernel_0_mul_sum_sub_div(tangents_1, primals_2, primals_1, getitem_1, rsqrt_0, mul_7)
    kernel_1_sub_mul_sum(tangents_1, primals_1, getitem_1, rsqrt_0, sum_3, sum_4)
    return (as_strided(mul_7, (4, 8), (8, 1), 0), as_strided(sum_3, (8,), (1,), 0), as_strided(sum_4, (8,), (1,), 0))
