def kernel_0_var_mean_add_rsqrt_sub(primals_1, primals_2, primals_3, getitem_1, rsqrt_0, add_1):
    var_mean_sum = empty(4, dtype=torch.float32)
    var_mean_sum_0 = empty(4, dtype=torch.float32)
    for i0 in range(4):
        var_mean_sum[i0] = 0
        for r0 in range(8):
            var_mean_sum[i0] = add(var_mean_sum[i0], primals_1[8*i0 + r0])
    for i0 in range(4):
        var_mean_sum_0[i0] = 0
        for r0 in range(8):
            t3 = primals_1[8*i0 + r0] - (var_mean_sum[i0] / 8)
            var_mean_sum_0[i0] = add(var_mean_sum_0[i0], t3 * t3)
    for i0 in range(4):
        getitem_1[i0] = var_mean_sum[i0] / 8
    for i0 in range(4):
        rsqrt_0[i0] = rsqrt((var_mean_sum_0[i0] / 8) + 1e-05)
    for i0 in range(4):
        for r0 in range(8):
            add_1[8*i0 + r0] = (((primals_1[8*i0 + r0] - getitem_1[i0]) * rsqrt_0[i0]) * primals_2[r0]) + primals_3[r0]

def run(primals_1, primals_2, primals_3):
    kernel_0_var_mean_add_rsqrt_sub(primals_1, primals_2, primals_3, getitem_1, rsqrt_0, add_1)
    return (as_strided(add_1, (4, 8), (8, 1), 0), as_strided(getitem_1, (4, 1), (1, 1), 0), as_strided(rsqrt_0, (4, 1), (1, 1), 0))
