"""The newcomer page's Triton kernel: `python -m chapters._book.triton_relu`.

Run with TRITON_INTERPRET=1 it needs no GPU: Triton then executes the
kernel's Python program by program, on a CPU.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_relu(x, out, n, scale, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    at = start + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, inside)
    value = tl.maximum(value, 0.0) * scale
    tl.store(out + at, value, inside)


def main():
    x = torch.linspace(-1, 1, 10)
    out = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), 4)
    scaled_relu[(programs,)](x, out, x.numel(), 2.0, BLOCK=4)
    print(f"{programs} programs of 4 elements each")
    print(out)
    assert torch.equal(out, x.relu() * 2)


if __name__ == "__main__":
    main()
