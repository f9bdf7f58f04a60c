# permute add
@launched(grid=lambda: 256, warps=2)
@triton.jit
def kernel_0_permute_add(primals_1_ptr, add_0_ptr):
    YBLOCK: tl.constexpr = 32
    XBLOCK: tl.constexpr = 32
    y = tl.program_id(0) // 16 * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    x = tl.program_id(0) % 16 * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    t0 = tl.load(primals_1_ptr + (x + 512*y)).to(tl.float32)
    t1 = tl.load(primals_1_ptr + (512*x + y)).to(tl.float32)
    t2 = device.rounded(t0 + t1, tl.bfloat16)
    tl.store(add_0_ptr + (x + 512*y), t2)
