extern "C" void kernel_0_sum_div_mul(
        const float* __restrict x_1_ptr,
        float* __restrict mul_0_ptr,
        int64 s0,
        int64 s1) {
#pragma omp parallel for if(s0*s1 >= 10922)
    for (int64 i0 = 0; i0 < s0; ++i0) {
        const float t4 = (float)s1;
        double w1 = 0.0f;
        for (int64 r0_ = 0; r0_ < s1; r0_ += 2048) {
            float a1 = 0.0f;
#pragma omp simd reduction(+:a1)
            for (int64 r0 = r0_; r0 < smaller<int64>(r0_ + 2048, s1); ++r0) {
                const float t0 = x_1_ptr[i0*s1 + r0];
                a1 = a1 + t0;
            }
            w1 = w1 + a1;
        }
        float t1 = (float)w1;
        for (int64 r0_ = 0; r0_ < s1; r0_ += 2048) {
#pragma omp simd
            for (int64 r0 = r0_; r0 < smaller<int64>(r0_ + 2048, s1); ++r0) {
                const float t0 = x_1_ptr[i0*s1 + r0];
                const float t2 = t0 / t1;
                const float t5 = t2 * t4;
                mul_0_ptr[i0*s1 + r0] = t5;
            }
        }
    }
}
