extern "C" void kernel_0_sum_div_mul(
        const float* __restrict x_1,
        float* __restrict mul_0,
        int64 s0,
        int64 s1) {
#pragma omp parallel for if(s0*s1 >= 10922)
    for (int64 i0 = 0; i0 < s0; ++i0) {
        const float t4 = (float)s1;
        double w1 = 0;
        for (int64 r0_ = 0; r0_ < s1; r0_ += 2048) {
            float a1 = 0;
#pragma omp simd reduction(+:a1)
            for (int64 r0 = r0_; r0 < smaller<int64>(r0_ + 2048, s1); ++r0) {
                const float t0 = x_1[i0*s1 + r0];
                a1 += t0;
            }
            w1 += a1;
        }
        const float t1 = (float)w1;
        for (int64 r0_ = 0; r0_ < s1; r0_ += 2048) {
#pragma omp simd
            for (int64 r0 = r0_; r0 < smaller<int64>(r0_ + 2048, s1); ++r0) {
                mul_0[i0*s1 + r0] = (x_1[i0*s1 + r0] / t1) * t4;
            }
        }
    }
}
