"""Honest implementations of this project's own problems, one body of ``forward`` each.

``SUMMED`` are tried with each function of :data:`SUMS` as ``add``; ``OTHERS`` compute otherwise than the reference.
"""

SUMS = ("in_turn", "from_the_end", "in_blocks", "in_pairs", "compensated")

SUMMED = {
    "matmul": "return add(a[:, :, None] * b, 1)",
    "long_k_matmul": "return add(a[:, :, None] * b, 1)",
    "batched_matmul": "return add(a[..., None] * b[:, None], 2)",
    "gram_matrix": "return add(x[:, :, None] * x[:, None], 0)",
    "trace_of_product": "return add((a * b.mT).flatten(1), 1)",
    "linear": "return add(x[..., None, :] * self.linear.weight, -1) + self.linear.bias",
    "conv1d": """
        pieces = F.pad(x, (2, 2)).unfold(2, 5, 2).movedim(2, 1).flatten(2)
        weight = self.conv.weight.flatten(1)
        return (add(pieces[:, :, None] * weight, -1) + self.conv.bias).mT.contiguous()
    """,
    "conv2d": """
        pieces = F.unfold(x, 3, padding=1)
        weight = self.conv.weight.flatten(1)
        sums = add(weight[None, :, :, None] * pieces[:, None], 2)
        return (sums + self.conv.bias[:, None]).view(x.shape[0], -1, *x.shape[2:])
    """,
    "softmax": """
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / add(e, -1)[:, None]
    """,
    "log_softmax": """
        shifted = x - x.amax(-1, keepdim=True)
        return shifted - add(shifted.exp(), -1).log()[:, None]
    """,
    "layer_norm": """
        mean = add(x, -1)[:, None] / x.shape[-1]
        variance = add((x - mean) ** 2, -1)[:, None] / x.shape[-1]
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias
    """,
    "rms_norm": "return x * (add(x * x, -1)[:, None] / x.shape[-1] + self.eps).rsqrt() * self.weight",
    "l2_normalize": "return x / add(x * x, 1).sqrt().clamp_min(self.eps)[:, None]",
    "column_sums": "return add(x, 0)",
    "row_norms": "return add(x * x, 1).sqrt(), x.abs().amax(1)",
    "var_mean": """
        mean = add(x, 1) / x.shape[1]
        return add((x - mean[:, None]) ** 2, 1) / (x.shape[1] - 1), mean
    """,
    "masked_mean": "return add(torch.where(mask, x, 0), 1) / mask.sum(1).clamp_min(1)",
    "lp_pool1d": "return add(x.unfold(2, 5, 3) ** 2, -1).sqrt()",
    "cross_entropy": """
        top = logits.amax(1)
        return add((logits - top[:, None]).exp(), 1).log() + top - logits.gather(1, targets[:, None])[:, 0]
    """,
    "kl_divergence": """
        x, y = logits * self.sharpness, targets * self.sharpness
        x, y = x - x.amax(1, keepdim=True), y - y.amax(1, keepdim=True)
        log_q, log_p = x - add(x.exp(), 1).log()[:, None], y - add(y.exp(), 1).log()[:, None]
        return add(log_p.exp() * (log_p - log_q), 1)
    """,
    "triplet_margin": """
        near, far = (add((anchor - other + self.eps) ** 2, 1).sqrt() for other in (positive, negative))
        return (near - far + self.margin).clamp_min(0)
    """,
    "mlp": """
        for layer in (self.first, self.second, self.third):
            given = x if layer is self.first else torch.relu(x)
            x = add(given[:, None] * layer.weight, -1) + layer.bias
        return x
    """,
    "softmax_backward": "return p * (gradient - add(gradient * p, -1)[:, None])",
    "embedding_bag": """
        ends = [*offsets[1:].tolist(), len(tokens)]
        rows = self.table[tokens]
        empty = torch.zeros_like(self.table[:1])
        bags = zip(offsets.tolist(), ends)
        return torch.stack([add(torch.cat([empty, rows[start:end]]), 0) for start, end in bags])
    """,
}

OTHERS = {
    "matmul, fused": """
        total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
        for k in range(a.shape[1]):
            total = fused(a[:, k, None], b[k], total)
        return total
    """,
    "matmul, split along the sum": "return sum(a[:, k::4] @ b[k::4] for k in range(4))",
    "matmul, other way round": "return (b.T @ a.T).T.contiguous()",
    "linear, fused": """
        total = self.linear.bias.expand(*x.shape[:-1], -1)
        for k in range(x.shape[-1]):
            total = fused(x[..., k, None], self.linear.weight[:, k], total)
        return total
    """,
    "conv2d, nine products": """
        padded, (height, width) = F.pad(x, (1, 1, 1, 1)), x.shape[2:]
        total = self.conv.bias[:, None, None]
        for i, j in itertools.product(range(3), range(3)):
            piece = padded[:, :, i : i + height, j : j + width]
            total = total + torch.einsum("oc,bchw->bohw", self.conv.weight[:, :, i, j], piece)
        return total.contiguous()
    """,
    "depthwise_conv2d, shifted": """
        padded, (height, width), total = F.pad(x, (2, 2, 2, 2)), x.shape[2:], 0
        for i, j in itertools.product(range(5), range(5)):
            total = total + padded[:, :, i : i + height, j : j + width] * self.conv.weight[:, :, i, j][None, :, :, None]
        return total
    """,
    "softmax, in one pass": """
        top, total = running_softmax_sum(x, 1)
        return (x - top[:, None]).exp() / total[:, None]
    """,
    "log_softmax, in one pass": """
        top, total = running_softmax_sum(x, 1)
        return x - top[:, None] - total.log()[:, None]
    """,
    "soft_maximum, in one pass": """
        top, total = running_softmax_sum(x / temperature, 1)
        return (total.log() + top) * temperature[:, 0]
    """,
    "cross_entropy, in one pass": """
        top, total = running_softmax_sum(logits, 1)
        return total.log() + top - logits.gather(1, targets[:, None])[:, 0]
    """,
    "attention, in blocks": """
        scores = q @ k.mT / q.shape[-1] ** 0.5
        top = torch.full_like(scores[..., :1], -torch.inf)
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for block, values in zip(scores.split(16, -1), v.split(16, -2)):
            higher = torch.maximum(top, block.amax(-1, keepdim=True))
            kept, e = (top - higher).exp(), (block - higher).exp()
            top, total, out = higher, total * kept + e.sum(-1, keepdim=True), out * kept + e @ values
        return out / total
    """,
    "layer_norm, running": """
        mean, variance = running_moments(x, 1)
        return (x - mean[:, None]) * (variance + self.eps).rsqrt()[:, None] * self.weight + self.bias
    """,
    "layer_norm, of squares": """
        mean, squares = x.mean(1, keepdim=True), (x * x).mean(1, keepdim=True)
        return (x - mean) * (squares - mean * mean + self.eps).rsqrt() * self.weight + self.bias
    """,
    "group_norm, running": """
        groups = x.view(x.shape[0], self.groups, -1)
        mean, variance = (moment[..., None] for moment in running_moments(groups, 2))
        normal = ((groups - mean) * (variance + self.eps).rsqrt()).view(x.shape)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]
    """,
    "instance_norm, running": """
        mean, variance = (moment[..., None, None] for moment in running_moments(x.flatten(2), 2))
        return (x - mean) * (variance + self.eps).rsqrt()
    """,
    "var_mean, running": """
        mean, variance = running_moments(x, 1)
        return variance * (x.shape[1] / (x.shape[1] - 1)), mean
    """,
    "cumsum, in turn": """
        sums = [x[:, 0]]
        for column in x.unbind(1)[1:]:
            sums.append(sums[-1] + column)
        return torch.stack(sums, 1)
    """,
    "cumsum, in blocks": """
        inner = [block.cumsum(1) for block in x.split(32, 1)]
        before = torch.stack([block[:, -1] for block in inner], 1).cumsum(1) - torch.stack([b[:, -1] for b in inner], 1)
        return torch.cat([block + before[:, i, None] for i, block in enumerate(inner)], 1)
    """,
    "gelu_tanh, as a logistic function": """
        return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))
    """,
    "softplus, through its symmetry": """
        z = self.beta * x
        return torch.where(z > self.threshold, x, (z.clamp_min(0) + torch.log1p((-z.abs()).exp())) / self.beta)
    """,
    "swiglu, by division": """
        gate, value = x.chunk(2, dim=-1)
        return gate * value / (1 + (-gate).exp())
    """,
    "silu_to_nchw, by division": "return (x / (1 + (-x).exp())).contiguous()",
    "huber, by a product": """
        off = (predictions - targets).abs()
        near = off.clamp_max(self.delta)
        return near * (off - 0.5 * near)
    """,
    "adamw_step, lerp": """
        first = torch.lerp(gradients, first, self.beta1)
        second = second + (1 - self.beta2) * (gradients * gradients - second)
        root = second.sqrt() / self.correction2**0.5 + self.eps
        step = self.learning_rate / self.correction1 * first / root
        return parameters - self.learning_rate * self.weight_decay * parameters - step, first, second
    """,
    "upsample_bilinear, columns first": """
        def twice(x, dim):
            size = x.shape[dim]
            left = x.index_select(dim, (torch.arange(size) - 1).clamp_min(0))
            right = x.index_select(dim, (torch.arange(size) + 1).clamp_max(size - 1))
            pair = torch.stack([0.25 * left + 0.75 * x, 0.75 * x + 0.25 * right], dim + 1)
            return pair.flatten(dim, dim + 1)

        return twice(twice(x, 3), 2)
    """,
    "segment_sums, of differences": """
        sums = F.pad(values.double().cumsum(0), (0, 0, 1, 0))
        return (sums[offsets[1:]] - sums[offsets[:-1]]).to(values.dtype)
    """,
    "residual_rms_norm, scaled first": """
        total = stream + branch
        size = total.abs().amax(1, keepdim=True) + 1e-30
        mean = ((total / size) ** 2).mean(1, keepdim=True) * size * size
        return total * (mean + self.eps).rsqrt() * self.weight, total
    """,
    "quantize_int8, by a reciprocal": """
        largest = x.abs().amax(dim=-1, keepdim=True).clamp_min(self.smallest)
        scale = 2.0 ** (torch.frexp(largest)[1] - 7).to(x.dtype)
        return torch.round(x * (1 / scale)).clamp(-127, 127).to(torch.int8), scale
    """,
    "matmul_w8a8, in blocks": """
        left, right = (rows.abs().amax(1, keepdim=True) * (1 / 127) for rows in (x, w))
        rows, columns = torch.round(x / left), torch.round(w / right)
        total = sum(a @ b.T for a, b in zip(rows.split(16, 1), columns.split(16, 1)))
        return total * (left * right.T)
    """,
    "all_reduce, gathered": """
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.stack(parts).flip(0).sum(0)
    """,
    "distributed_softmax, by one exchange": """
        top = x.amax(1)
        own = torch.stack([top, (x - top[:, None]).exp().sum(1)])
        found = x.new_empty(dist.get_world_size() * 2, len(x))
        dist.all_gather_into_tensor(found, own)
        tops, sums = found.view(-1, 2, len(x)).unbind(1)
        total = (sums * (tops - tops.amax(0)).exp()).sum(0)
        return (x - tops.amax(0)[:, None]).exp() / total[:, None]
    """,
    "bernoulli, by a comparison": "return (torch.rand_like(probabilities) < probabilities).to(probabilities.dtype)",
}
