import torch
from torch import nn
import triton
import triton.language as tl


@triton.jit
def _rna(v):
    # round to the nearest TF32 value (10 bits of mantissa), as a float32
    b = v.to(tl.int32, bitcast=True)
    b = (b + 4096) & -8192
    return b.to(tl.float32, bitcast=True)


# --------------------------------------------------------------------------
# Weight packing (weights only).  Layout: [13 steps][128 channels][32 taps].
#   tap k: chunk id = k // 4, j = k % 4; q = id % 3, c = (id // 3) % 3,
#          kh = id // 9, kw = 4 * q + j   (kw == 11 has weight zero)
#   k = 396 + cls : high TF32 part of the sum of the valid weights of a class
#   k = 405 + cls : low part of the same;  k = 414, 415: the bias, high and low
# --------------------------------------------------------------------------
@triton.jit
def _pack_weights(w_ptr, b_ptr, o_ptr, cout, HAS_BIAS: tl.constexpr):
    n = tl.program_id(0)
    k = tl.arange(0, 512)
    ids = k // 4
    kw = (ids % 3) * 4 + k % 4
    c = (ids // 3) % 3
    kh = ids // 9
    ok = (ids < 99) & (kw < 11) & (n < cout)
    v = tl.load(w_ptr + n * 363 + c * 121 + kh * 11 + kw, mask=ok, other=0.0)
    out = _rna(v)
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
            t = tl.sum(tl.where(sel, v, 0.0), axis=0)
            hi = _rna(t)
            lo = _rna(t - hi)
            out = tl.where(k == 396 + r * 3 + s, hi, out)
            out = tl.where(k == 405 + r * 3 + s, lo, out)
    if HAS_BIAS:
        b = tl.load(b_ptr + n, mask=n < cout, other=0.0)
        bhi = _rna(b)
        blo = _rna(b - bhi)
        out = tl.where(k == 414, bhi, out)
        out = tl.where(k == 415, blo, out)
    tl.store(o_ptr + (k // 32) * 4096 + n * 32 + k % 32, out, mask=k < 416)


# --------------------------------------------------------------------------
# Fast path: 3 channels, 11x11, stride 4, padding 2, H and W multiples of 4
# --------------------------------------------------------------------------
@triton.jit
def _taps(x_ptr, base, ih0, hp0, it, m, H: tl.constexpr, W: tl.constexpr):
    # 32 taps (8 chunks of 4) of step `it` for every pixel of the tile; taps in
    # the padding give m, which becomes zero once the pivot is subtracted
    kk = tl.arange(0, 32)
    ids = it * 8 + kk // 4
    q = ids % 3
    c = (ids // 3) % 3
    kh = ids // 9
    koff = c * (H * W) + kh * W + q * 4 + kk % 4
    pair = q * 2 + (kk // 2) % 2
    ih = ih0[:, None] + kh[None, :]
    hp = hp0[:, None] + pair[None, :]
    real = ids < 99
    ok = (ih >= 0) & (ih < H) & (hp >= 0) & (hp < W // 2) & real[None, :]
    off = base[:, None] + koff[None, :]
    return tl.load(x_ptr + off, mask=ok, other=m)


@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "SPLIT": True, "PRE": True}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "SPLIT": True, "PRE": True}, num_warps=8, num_stages=3),
        triton.Config({"BM": 128, "SPLIT": True, "PRE": True}, num_warps=8, num_stages=2, maxnreg=128),
        triton.Config({"BM": 256, "SPLIT": True, "PRE": True}, num_warps=8, num_stages=3),
        triton.Config({"BM": 64, "SPLIT": True, "PRE": True}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "SPLIT": False, "PRE": True}, num_warps=8, num_stages=3),
        triton.Config({"BM": 128, "SPLIT": True, "PRE": False}, num_warps=4, num_stages=3),
        triton.Config({"BM": 256, "SPLIT": True, "PRE": False}, num_warps=8, num_stages=3),
    ],
    key=["P", "H", "W", "COUT"],
)
@triton.jit
def _conv_stream(x_ptr, w_ptr, o_ptr, P,
                 COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
                 OH: tl.constexpr, OW: tl.constexpr,
                 BM: tl.constexpr, SPLIT: tl.constexpr, PRE: tl.constexpr):
    NPIX: tl.constexpr = OH * OW

    pg = tl.program_id(0) * BM + tl.arange(0, BM)
    valid = pg < P
    pc = tl.minimum(pg, P - 1)
    n = pc // NPIX
    r = pc - n * NPIX
    oh = r // OW
    ow = r - oh * OW
    ih0 = oh * 4 - 2
    hp0 = ow * 2 - 1
    base = n * (3 * H * W) + ih0 * W + ow * 4 - 2

    # pivot of the tile: mean of one sample per pixel and channel, rounded to a
    # whole number (and to TF32).  A fractional pivot would give x - m more
    # mantissa bits than TF32 has although x itself fits; with a whole pivot
    # integers stay integers, so the shift never costs accuracy there.
    sp = base + (2 * W + 2)
    smp = tl.load(x_ptr + sp) + tl.load(x_ptr + sp + H * W) + tl.load(x_ptr + sp + 2 * H * W)
    mean = tl.sum(smp, axis=0) * (1.0 / (3 * BM))
    m = _rna(tl.floor(mean + 0.5))

    # weights: k is contiguous
    kk = tl.arange(0, 32)
    n0 = tl.arange(0, 64)
    n1 = tl.arange(0, 32)
    nf = tl.arange(0, 128)
    w0 = w_ptr + (n0[None, :] * 32 + kk[:, None])
    w1 = w_ptr + (n1[None, :] * 32 + kk[:, None] + 2048)
    wf = w_ptr + (nf[None, :] * 32 + kk[:, None])

    if SPLIT:
        acc0 = tl.zeros((BM, 64), dtype=tl.float32)
        acc1 = tl.zeros((BM, 32), dtype=tl.float32)
    else:
        accf = tl.zeros((BM, 128), dtype=tl.float32)

    if PRE:
        raw = _taps(x_ptr, base, ih0, hp0, 0, m, H, W)
        for it in range(0, 12):
            nxt = _taps(x_ptr, base, ih0, hp0, it + 1, m, H, W)
            a = _rna(raw - m)
            if SPLIT:
                b0 = tl.load(w0 + it * 4096)
                b1 = tl.load(w1 + it * 4096)
                acc0 = tl.dot(a, b0, acc0, input_precision="tf32")
                acc1 = tl.dot(a, b1, acc1, input_precision="tf32")
            else:
                bf = tl.load(wf + it * 4096)
                accf = tl.dot(a, bf, accf, input_precision="tf32")
            raw = nxt
        last = raw
    else:
        for it in range(0, 12):
            a = _rna(_taps(x_ptr, base, ih0, hp0, it, m, H, W) - m)
            if SPLIT:
                b0 = tl.load(w0 + it * 4096)
                b1 = tl.load(w1 + it * 4096)
                acc0 = tl.dot(a, b0, acc0, input_precision="tf32")
                acc1 = tl.dot(a, b1, acc1, input_precision="tf32")
            else:
                bf = tl.load(wf + it * 4096)
                accf = tl.dot(a, bf, accf, input_precision="tf32")
        last = _taps(x_ptr, base, ih0, hp0, 12, m, H, W)

    # last step: 12 real taps, then pivot correction by border class, then bias
    rc = (oh > 0).to(tl.int32) + (oh == OH - 1).to(tl.int32)
    cc = (ow > 0).to(tl.int32) + (ow == OW - 1).to(tl.int32)
    cls = rc * 3 + cc
    u = kk - 12
    hot = (u[None, :] == cls[:, None]) | (u[None, :] == (cls + 9)[:, None])
    al = _rna(last - m)
    al = tl.where(hot, m, al)
    al = tl.where((u >= 18)[None, :], 1.0, al)

    # the hint only decides that lanes run along pixels
    obase = tl.max_contiguous(n * (COUT * NPIX) + r, 4)
    optr = o_ptr + obase[:, None]
    if SPLIT:
        c0 = tl.load(w0 + 12 * 4096)
        c1 = tl.load(w1 + 12 * 4096)
        acc0 = tl.dot(al, c0, acc0, input_precision="tf32")
        acc1 = tl.dot(al, c1, acc1, input_precision="tf32")
        tl.store(optr + (n0 * NPIX)[None, :], acc0,
                 mask=valid[:, None] & (n0 < COUT)[None, :])
        ch1 = n1 + 64
        tl.store(optr + (ch1 * NPIX)[None, :], acc1,
                 mask=valid[:, None] & (ch1 < COUT)[None, :])
    else:
        cf = tl.load(wf + 12 * 4096)
        accf = tl.dot(al, cf, accf, input_precision="tf32")
        tl.store(optr + (nf * NPIX)[None, :], accf,
                 mask=valid[:, None] & (nf < COUT)[None, :])


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
        if not self._packable():
            return
        w = self.conv.weight.detach()
        bias = self.conv.bias
        has_bias = bias is not None
        b = bias.detach() if has_bias else w
        buf = torch.empty((13, 128, 32), device=w.device, dtype=torch.float32)
        _pack_weights[(128,)](w, b, buf, w.shape[0], HAS_BIAS=has_bias, num_warps=4)
        self.packed = buf

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

        fast = (
            self._packable()
            and H % 4 == 0
            and W % 4 == 0
            and OH >= 2
            and OW >= 2
            and x.numel() < 2 ** 31 - 2 ** 20
            and out.numel() < 2 ** 31 - 2 ** 20
        )
        if fast:
            if self.packed is None or self.packed.device != x.device:
                self.prepare()
            grid = lambda meta: (triton.cdiv(P, meta["BM"]),)
            _conv_stream[grid](x, self.packed, out, P,
                               COUT=COUT, H=H, W=W, OH=OH, OW=OW)
            return out

        has_bias = bias is not None
        b = bias.detach() if has_bias else w
        BP = 64
        BO = 32
        _conv_direct[(triton.cdiv(P, BP), triton.cdiv(COUT, BO))](
            x, w, b, out, P, C, H, W, COUT, OH, OW,
            KH, KW, SH, SW, PH, PW,
            HAS_BIAS=has_bias, BP=BP, BO=BO, num_warps=4)
        return out
