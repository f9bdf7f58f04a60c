def softmax(x, out):
    e = empty(35, dtype=torch.float32)
    top = empty(5, dtype=torch.float32)
    total = empty(5, dtype=torch.float32)
    for i0 in range(5):
        top[i0] = -inf
        for r0 in range(7):
            top[i0] = maximum(top[i0], x[7*i0 + r0])
    for i0 in range(5):
        for r0 in range(7):
            e[7*i0 + r0] = exp(x[7*i0 + r0] - top[i0])
    for i0 in range(5):
        total[i0] = 0
        for r0 in range(7):
            total[i0] = add(total[i0], e[7*i0 + r0])
    for i0 in range(5):
        for r0 in range(7):
            out[7*i0 + r0] = e[7*i0 + r0] / total[i0]
