extern "C" void kernel_0_sum_div_mul(
        const float* __restrict x_1_ptr,
        float* __restrict mul_0_ptr,
        int64 s0,
        int64 s1) {
#pragma omp parallel for if(s0*s1 >= 10922)
    for (int64 i0 = 0; i0 < s0; ++i0) {
        const float t0 = (float)s1;
        double sum0 = 0.0;
        for (int64 r0_ = 0; r0_ < s1; r0_ += 512) {
            float p0 = 0.0f;
#pragma omp simd reduction(+:p0)
            for (int64 r0 = r0_; r0 < smaller<int64>(r0_ + 512, s1); ++r0) {
                const float t1 = x_1_ptr[i0*s1 + r0];
                p0 = p0 + t1;
            }
            sum0 += p0;
        }
        const float t2 = (float)sum0;
#pragma omp simd
        for (int64 r0 = 0; r0 < s1; ++r0) {
            const float t3 = x_1_ptr[i0*s1 + r0];
            const float t4 = t3 / t2;
            const float t5 = t4 * t0;
            mul_0_ptr[i0*s1 + r0] = t5;
        }
    }
}
