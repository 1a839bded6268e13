import torch
from torch import nn
import triton
import triton.language as tl


# --------------------------------------------------------------------------
# Weight packing (weights only), FP16, layout [464 rows of k][96 channels].
#   k = g*144 + gc*48 + c*16 + dh*4 + dw, kh = 4*g + dh, kw = 4*gc + dw
#   (kh == 11 or kw == 11: zero)
#   k = 432 + part*9 + cls: sum of the valid weights of a border class, split
#   into three FP16 parts; the rest zero.
# Every channel is multiplied by a power of two that puts its largest weight
# into [2^4, 2^5); s_ptr receives the inverse.
# --------------------------------------------------------------------------
@triton.jit
def _pack_weights(w_ptr, o_ptr, s_ptr, cout):
    n = tl.program_id(0)
    k = tl.arange(0, 512)
    g = k // 144
    rem = k % 144
    gc = rem // 48
    j = rem % 48
    c = j // 16
    dh = (j // 4) % 4
    dw = j % 4
    kh = g * 4 + dh
    kw = gc * 4 + dw
    ok = (k < 432) & (kh < 11) & (kw < 11) & (n < cout)
    v = tl.load(w_ptr + n * 363 + c * 121 + kh * 11 + kw, mask=ok, other=0.0)
    amax = tl.max(tl.abs(v), axis=0)
    ew = (amax.to(tl.int32, bitcast=True) >> 23) - 127
    ew = tl.maximum(ew, -110)
    ew = tl.where(amax > 0.0, ew, 4)
    sc = ((131 - ew) << 23).to(tl.float32, bitcast=True)
    inv = ((123 + ew) << 23).to(tl.float32, bitcast=True)
    tl.store(s_ptr + n, inv)
    tl.store(o_ptr + k * 96 + n, (v * sc).to(tl.float16), mask=k < 432)

    kt = tl.arange(0, 32)
    out = tl.zeros((32,), dtype=tl.float32)
    for r in tl.static_range(3):
        for s in tl.static_range(3):
            sel = ok
            if r == 0:
                sel = sel & (kh >= 2)
            if r == 2:
                sel = sel & (kh < 10)
            if s == 0:
                sel = sel & (kw >= 2)
            if s == 2:
                sel = sel & (kw < 10)
            t = tl.sum(tl.where(sel, v, 0.0), axis=0) * sc
            hi = t.to(tl.float16).to(tl.float32)
            r1 = t - hi
            mid = r1.to(tl.float16).to(tl.float32)
            lo = r1 - mid
            out = tl.where(kt == r * 3 + s, hi, out)
            out = tl.where(kt == 9 + r * 3 + s, mid, out)
            out = tl.where(kt == 18 + r * 3 + s, lo, out)
    tl.store(o_ptr + (432 + kt) * 96 + n, out.to(tl.float16))


# --------------------------------------------------------------------------
# Staging: one program per group of four padded rows (4G-2 .. 4G+1).
# Writes [cell][c][dh][dw] as FP16, (x - m) * 2^(14 - e), zero in the padding.
# --------------------------------------------------------------------------
@triton.jit
def _stage(x_ptr, xs_ptr, e_ptr, m_ptr,
           H: tl.constexpr, W: tl.constexpr,
           GH: tl.constexpr, GW: tl.constexpr, BC: tl.constexpr):
    pid = tl.program_id(0)
    n = pid // GH
    G = pid - n * GH
    img = x_ptr + n * (3 * H * W)

    # the image's data
    line = tl.arange(0, 16)
    c = line // 4
    ih = G * 4 - 2 + line % 4
    col = tl.arange(0, BC * 4)
    hp = col // 2 - 1
    lok = (line < 12) & (ih >= 0) & (ih < H)
    cok = (hp >= 0) & (hp < W // 2)
    ok = lok[:, None] & cok[None, :]
    off = (c * (H * W) + ih * W)[:, None] + (col - 2)[None, :]
    v = tl.load(img + off, mask=ok, other=0.0, eviction_policy="evict_first")

    # pivot of the image: mean of 64 fixed samples, rounded to a whole number
    t = tl.arange(0, 64)
    smp = tl.load(img + t * ((3 * H * W) // 64) + (3 * H * W) // 128)
    mean = tl.sum(smp, axis=0) * (1.0 / 64.0)
    m = tl.where(tl.abs(mean) < 1e30, tl.floor(mean + 0.5), 0.0)

    v = tl.where(ok, v - m, 0.0)
    amax = tl.max(tl.max(tl.abs(v), axis=1), axis=0)
    e = (amax.to(tl.int32, bitcast=True) >> 23) - 127
    e = tl.maximum(e, -110)
    sc = ((141 - e) << 23).to(tl.float32, bitcast=True)
    y = (v * sc).to(tl.float16)
    y = tl.reshape(y, (16, BC, 4))
    y = tl.permute(y, (1, 0, 2))
    y = tl.reshape(y, (BC, 64))

    cell = tl.arange(0, BC)
    j = tl.arange(0, 64)
    tl.store(xs_ptr + pid * (GW * 48) + cell[:, None] * 48 + j[None, :], y,
             mask=(cell < GW)[:, None] & (j < 48)[None, :])
    # a group of zeros is neutral
    tl.store(e_ptr + pid, tl.where(amax > 0.0, e - 14, -1000))
    tl.store(m_ptr + n, m, mask=G == 0)


# --------------------------------------------------------------------------
# GEMM over the staged data: pixels x (3 groups of 144 taps) x 96 channels
# --------------------------------------------------------------------------
@triton.autotune(
    configs=[
        triton.Config({"BM": 128}, num_warps=8, num_stages=2),
        triton.Config({"BM": 128}, num_warps=4, num_stages=2),
        triton.Config({"BM": 128}, num_warps=8, num_stages=3),
        triton.Config({"BM": 256}, num_warps=8, num_stages=2),
        triton.Config({"BM": 64}, num_warps=4, num_stages=2),
        triton.Config({"BM": 64}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128}, num_warps=8, num_stages=1),
        triton.Config({"BM": 64}, num_warps=4, num_stages=1),
    ],
    key=["P", "OH", "OW", "COUT"],
)
@triton.jit
def _conv_gemm(xs_ptr, e_ptr, m_ptr, w_ptr, s_ptr, b_ptr, o_ptr, P,
               COUT: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
               GH: tl.constexpr, GW: tl.constexpr,
               HAS_BIAS: tl.constexpr, BM: tl.constexpr):
    NPIX: tl.constexpr = OH * OW
    AROW: tl.constexpr = GW * 48
    BROW: tl.constexpr = 144 * 96

    pg = tl.program_id(0) * BM + tl.arange(0, BM)
    valid = pg < P
    pc = tl.minimum(pg, P - 1)
    n = pc // NPIX
    r = pc - n * NPIX
    oh = r // OW
    ow = r - oh * OW
    grp = n * GH + oh
    base = (grp * GW + ow) * 48

    # units of the three groups; the accumulator is rescaled between them
    x0 = tl.load(e_ptr + grp)
    x1 = tl.maximum(tl.load(e_ptr + grp + 1), x0 - 48)
    x2 = tl.maximum(tl.load(e_ptr + grp + 2), x1 - 48)
    d1 = tl.maximum(x0 - x1, -126)
    d2 = tl.maximum(x1 - x2, -126)
    f1 = ((d1 + 127) << 23).to(tl.float32, bitcast=True)
    f2 = ((d2 + 127) << 23).to(tl.float32, bitcast=True)

    ka = tl.arange(0, 128)
    kb = tl.arange(0, 16)
    n0 = tl.arange(0, 64)
    n1 = tl.arange(0, 32)
    ap = xs_ptr + (base[:, None] + ka[None, :])
    at = xs_ptr + (base[:, None] + (kb[None, :] + 128))
    wa0 = w_ptr + (ka[:, None] * 96 + n0[None, :])
    wa1 = w_ptr + (ka[:, None] * 96 + (n1[None, :] + 64))
    wt0 = w_ptr + (kb[:, None] * 96 + n0[None, :] + 128 * 96)
    wt1 = w_ptr + (kb[:, None] * 96 + (n1[None, :] + 64) + 128 * 96)

    acc0 = tl.zeros((BM, 64), dtype=tl.float32)
    acc1 = tl.zeros((BM, 32), dtype=tl.float32)

    for g in range(0, 3):
        a = tl.load(ap + g * AROW)
        a2 = tl.load(at + g * AROW)
        b0 = tl.load(wa0 + g * BROW)
        b1 = tl.load(wa1 + g * BROW)
        c0 = tl.load(wt0 + g * BROW)
        c1 = tl.load(wt1 + g * BROW)
        f = tl.where(g == 2, f2, f1)      # for g == 0 it multiplies zeros
        acc0 = acc0 * f[:, None]
        acc1 = acc1 * f[:, None]
        acc0 = tl.dot(a, b0, acc0, input_precision="tf32")
        acc1 = tl.dot(a, b1, acc1, input_precision="tf32")
        acc0 = tl.dot(a2, c0, acc0, input_precision="tf32")
        acc1 = tl.dot(a2, c1, acc1, input_precision="tf32")

    # weight sums of the pixel's border class (for the pivot)
    rc = (oh > 0).to(tl.int32) + (oh == OH - 1).to(tl.int32)
    cc = (ow > 0).to(tl.int32) + (ow == OW - 1).to(tl.int32)
    cls = rc * 3 + cc
    kt = tl.arange(0, 32)
    hot = ((kt[None, :] == cls[:, None])
           | (kt[None, :] == (cls + 9)[:, None])
           | (kt[None, :] == (cls + 18)[:, None]))
    ah = tl.where(hot, 1.0, 0.0).to(tl.float16)
    m = tl.load(m_ptr + n)

    # power of two of the pixel, in two factors
    u = tl.minimum(tl.maximum(x2, -250), 250)
    h1 = u >> 1
    h2 = u - h1
    p1 = ((h1 + 127) << 23).to(tl.float32, bitcast=True)
    p2 = ((h2 + 127) << 23).to(tl.float32, bitcast=True)

    # the hint only decides that lanes run along pixels
    obase = tl.max_contiguous(n * (COUT * NPIX) + r, 4)
    optr = o_ptr + obase[:, None]

    zt0 = tl.load(w_ptr + ((kt[:, None] + 432) * 96 + n0[None, :]))
    t0 = tl.dot(ah, zt0, tl.zeros((BM, 64), dtype=tl.float32), input_precision="tf32")
    s0 = tl.load(s_ptr + n0)
    y0 = ((acc0 * s0[None, :]) * p1[:, None]) * p2[:, None]
    z0 = (t0 * s0[None, :]) * m[:, None]
    if HAS_BIAS:
        bias0 = tl.load(b_ptr + n0, mask=n0 < COUT, other=0.0)
        z0 = z0 + bias0[None, :]
    tl.store(optr + (n0 * NPIX)[None, :], y0 + z0,
             mask=valid[:, None] & (n0 < COUT)[None, :],
             eviction_policy="evict_first")

    ch1 = n1 + 64
    zt1 = tl.load(w_ptr + ((kt[:, None] + 432) * 96 + (n1[None, :] + 64)))
    t1 = tl.dot(ah, zt1, tl.zeros((BM, 32), dtype=tl.float32), input_precision="tf32")
    s1 = tl.load(s_ptr + ch1)
    y1 = ((acc1 * s1[None, :]) * p1[:, None]) * p2[:, None]
    z1 = (t1 * s1[None, :]) * m[:, None]
    if HAS_BIAS:
        bias1 = tl.load(b_ptr + ch1, mask=ch1 < COUT, other=0.0)
        z1 = z1 + bias1[None, :]
    tl.store(optr + (ch1 * NPIX)[None, :], y1 + z1,
             mask=valid[:, None] & (ch1 < COUT)[None, :],
             eviction_policy="evict_first")


# --------------------------------------------------------------------------
# Any other shape: plain fp32 direct convolution
# --------------------------------------------------------------------------
@triton.jit
def _conv_direct(x_ptr, w_ptr, b_ptr, o_ptr, P, C, H, W, COUT, OH, OW,
                 KH, KW, SH, SW, PH, PW,
                 HAS_BIAS: tl.constexpr, BP: tl.constexpr, BO: tl.constexpr):
    p = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    o = tl.program_id(1).to(tl.int64) * BO + tl.arange(0, BO)
    pm = p < P
    om = o < COUT
    ow = p % OW
    t = p // OW
    oh = t % OH
    n = t // OH
    acc = tl.zeros((BP, BO), dtype=tl.float32)
    for c in range(0, C):
        for kh in range(0, KH):
            h = oh * SH - PH + kh
            hm = pm & (h >= 0) & (h < H)
            row = ((n * C + c) * H + h) * W
            for kw in range(0, KW):
                w = ow * SW - PW + kw
                xv = tl.load(x_ptr + row + w, mask=hm & (w >= 0) & (w < W), other=0.0)
                wv = tl.load(w_ptr + ((o * C + c) * KH + kh) * KW + kw, mask=om, other=0.0)
                acc += xv[:, None] * wv[None, :]
    if HAS_BIAS:
        b = tl.load(b_ptr + o, mask=om, other=0.0)
        acc += b[None, :]
    off = ((n[:, None] * COUT + o[None, :]) * OH + oh[:, None]) * OW + ow[:, None]
    tl.store(o_ptr + off, acc, mask=pm[:, None] & om[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.packed = None
        self.wscale = None

    def _packable(self):
        w = self.conv.weight
        return (
            tuple(w.shape[1:]) == (3, 11, 11)
            and w.shape[0] <= 96
            and tuple(self.conv.stride) == (4, 4)
            and tuple(self.conv.padding) == (2, 2)
            and w.dtype == torch.float32
        )

    def prepare(self):
        self.packed = None
        self.wscale = None
        if not self._packable():
            return
        w = self.conv.weight.detach()
        buf = torch.empty((464, 96), device=w.device, dtype=torch.float16)
        sc = torch.empty((96,), device=w.device, dtype=torch.float32)
        _pack_weights[(96,)](w, buf, sc, w.shape[0], num_warps=4)
        self.packed = buf
        self.wscale = sc

    def forward(self, x):
        w = self.conv.weight.detach()
        bias = self.conv.bias
        N, C, H, W = x.shape
        COUT, _, KH, KW = w.shape
        SH, SW = self.conv.stride
        PH, PW = self.conv.padding
        OH = (H + 2 * PH - KH) // SH + 1
        OW = (W + 2 * PW - KW) // SW + 1
        out = torch.empty((N, COUT, OH, OW), device=x.device, dtype=x.dtype)
        if out.numel() == 0:
            return out
        P = N * OH * OW
        has_bias = bias is not None
        b = bias.detach() if has_bias else w

        GH = OH + 2
        GW = OW + 2
        limit = 2 ** 31 - 2 ** 20
        fast = (
            self._packable()
            and H % 4 == 0
            and W % 4 == 0
            and OH >= 2
            and OW >= 2
            and GW <= 256
            and x.numel() < limit
            and out.numel() < limit
            and N * GH * GW * 48 < limit
        )
        if fast:
            if self.packed is None or self.packed.device != x.device:
                self.prepare()
            xs = torch.empty((N * GH * GW * 48,), device=x.device, dtype=torch.float16)
            es = torch.empty((N * GH,), device=x.device, dtype=torch.int32)
            ms = torch.empty((N,), device=x.device, dtype=torch.float32)
            BC = max(16, triton.next_power_of_2(GW))
            _stage[(N * GH,)](x, xs, es, ms, H=H, W=W, GH=GH, GW=GW, BC=BC, num_warps=4)
            grid = lambda meta: (triton.cdiv(P, meta["BM"]),)
            _conv_gemm[grid](xs, es, ms, self.packed, self.wscale, b, out, P,
                             COUT=COUT, OH=OH, OW=OW, GH=GH, GW=GW,
                             HAS_BIAS=has_bias)
            return out

        BP = 64
        BO = 32
        _conv_direct[(triton.cdiv(P, BP), triton.cdiv(COUT, BO))](
            x, w, b, out, P, C, H, W, COUT, OH, OW,
            KH, KW, SH, SW, PH, PW,
            HAS_BIAS=has_bias, BP=BP, BO=BO, num_warps=4)
        return out
