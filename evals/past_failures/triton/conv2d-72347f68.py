import torch
from torch import nn
import triton
import triton.language as tl


# Layout of the packed weights: 128 rows (output channels, zero beyond 96) of
# 480 floats: 448 taps (k = (c * 11 + kh) * 12 + kw, zero padded), then 16 + 16
# columns with the high and low TF32 parts of the weight sums of 16 border classes.
_ROWS = 128
_KW = 448
_KP = 480


@triton.jit
def _rna_tf32(v):
    b = v.to(tl.int32, bitcast=True)
    b = (b + 0x1000) & -8192
    return b.to(tl.float32, bitcast=True)


@triton.jit
def pack_weights(w_ptr, p_ptr, CO,
                 C: tl.constexpr, KS: tl.constexpr, PD: tl.constexpr,
                 KWP: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr,
                 BLOCK: tl.constexpr):
    co = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    r = k // KWP
    kw = k % KWP
    c = r // KS
    kh = r % KS
    real = (c < C) & (kw < KS) & (co < CO)
    w = tl.load(w_ptr + ((co * C + c) * KS + kh) * KS + kw, mask=real, other=0.0)
    wr = _rna_tf32(w)
    tl.store(p_ptr + co * KP + k, wr, mask=k < KW)
    # class = hc * 4 + wc; 0: interior, 1: PD leading taps outside,
    # 2: one trailing tap outside, 3: two trailing taps outside
    for cls in tl.static_range(16):
        hc = cls // 4
        wc = cls % 4
        lo_h = PD if hc == 1 else 0
        hi_h = KS - (hc - 1) if hc >= 2 else KS
        lo_w = PD if wc == 1 else 0
        hi_w = KS - (wc - 1) if wc >= 2 else KS
        inside = (kh >= lo_h) & (kh < hi_h) & (kw >= lo_w) & (kw < hi_w)
        term = tl.where(inside, w, wr)
        t = tl.sum(term.to(tl.float64), axis=0)
        hi = _rna_tf32(t.to(tl.float32))
        lo = _rna_tf32((t - hi.to(tl.float64)).to(tl.float32))
        tl.store(p_ptr + co * KP + KW + cls, hi)
        tl.store(p_ptr + co * KP + KW + 16 + cls, lo)


@triton.jit
def _gather(x_ptr, base, ih0, iw0, s,
            C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
            KS: tl.constexpr, KWP: tl.constexpr, BK: tl.constexpr):
    k = s * BK + tl.arange(0, BK)
    r = k // KWP
    kw = k % KWP
    c = r // KS
    kh = r - c * KS
    khm = tl.where(c < C, kh, 1048576)
    off = c * (H * W) + kh * W + kw
    kwp = (kw // 2) * 2
    ih = ih0[:, None] + khm[None, :]
    iw = iw0[:, None] + kwp[None, :]
    mask = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
    return tl.load(x_ptr + (base[:, None] + off[None, :]), mask=mask, other=0.0)


@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "BK": 32, "REG": 1, "SPLIT": 1}, num_warps=8, num_stages=3, maxnreg=128),
        triton.Config({"BM": 128, "BK": 32, "REG": 1, "SPLIT": 1}, num_warps=8, num_stages=3),
        triton.Config({"BM": 128, "BK": 32, "REG": 1, "SPLIT": 1}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BK": 32, "REG": 0, "SPLIT": 1}, num_warps=8, num_stages=3, maxnreg=128),
        triton.Config({"BM": 128, "BK": 32, "REG": 0, "SPLIT": 1}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BK": 32, "REG": 1, "SPLIT": 0}, num_warps=8, num_stages=3, maxnreg=128),
        triton.Config({"BM": 64, "BK": 32, "REG": 1, "SPLIT": 1}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BK": 64, "REG": 1, "SPLIT": 1}, num_warps=8, num_stages=2),
    ],
    key=["M"],
)
@triton.jit
def conv_gemm(x_ptr, w_ptr, b_ptr, o_ptr, M,
              C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
              OH: tl.constexpr, OW: tl.constexpr, CO: tl.constexpr,
              KS: tl.constexpr, ST: tl.constexpr, PD: tl.constexpr,
              KWP: tl.constexpr, KW: tl.constexpr, KP: tl.constexpr,
              BM: tl.constexpr, BK: tl.constexpr,
              REG: tl.constexpr, SPLIT: tl.constexpr):
    OHW: tl.constexpr = OH * OW
    STEPS: tl.constexpr = (C * KS * KWP + BK - 1) // BK

    pid = tl.program_id(0)
    rows = pid * BM + tl.arange(0, BM)
    ok = rows < M
    n = rows // OHW
    pix = rows - n * OHW
    oh = pix // OW
    ow = pix - oh * OW
    ih0 = oh * ST - PD
    iw0 = ow * ST - PD
    base = n * (C * H * W) + ih0 * W + iw0
    ihm = tl.where(ok, ih0, -16777216)

    # samples for the pivot of this tile: one pixel of each window
    soff = n * (C * H * W) + (rows % C) * (H * W) + (oh * ST) * W + ow * ST
    smp = tl.load(x_ptr + soff, mask=ok, other=0.0)

    # the columns of the border classes
    j = tl.arange(0, 32)
    kk = tl.arange(0, BK)
    if SPLIT:
        co0 = tl.arange(0, 64)
        co1 = 64 + tl.arange(0, 32)
        q0 = tl.load(w_ptr + (co0[None, :] * KP + KW + j[:, None]))
        q1 = tl.load(w_ptr + (co1[None, :] * KP + KW + j[:, None]))
        w0 = w_ptr + (co0[None, :] * KP + kk[:, None])
        w1 = w_ptr + (co1[None, :] * KP + kk[:, None])
        acc0 = tl.zeros([BM, 64], dtype=tl.float32)
        acc1 = tl.zeros([BM, 32], dtype=tl.float32)
    else:
        co0 = tl.arange(0, 128)
        q0 = tl.load(w_ptr + (co0[None, :] * KP + KW + j[:, None]))
        w0 = w_ptr + (co0[None, :] * KP + kk[:, None])
        acc0 = tl.zeros([BM, 128], dtype=tl.float32)

    if REG:
        raw = _gather(x_ptr, base, ihm, iw0, 0, C, H, W, KS, KWP, BK)

    # pivot, rounded to 10 significant bits (exact in TF32)
    cnt = tl.minimum(M - pid * BM, BM).to(tl.float32)
    mean = tl.sum(smp, axis=0) / cnt
    pbits = mean.to(tl.int32, bitcast=True)
    pbits = (pbits + 0x2000) & -16384
    p = pbits.to(tl.float32, bitcast=True)
    ps = p * 1.000244140625

    # acc = pivot * T[border class of the pixel]
    bh = ih0 + KS - H
    bw = iw0 + KS - W
    hc = tl.where(ih0 < 0, 1, tl.where(bh > 0, bh + 1, 0))
    wc = tl.where(iw0 < 0, 1, tl.where(bw > 0, bw + 1, 0))
    cls = hc * 4 + wc
    v = tl.where((j % 16)[None, :] == cls[:, None], p, 0.0)
    acc0 = tl.dot(v, q0, acc0, input_precision="tf32")
    if SPLIT:
        acc1 = tl.dot(v, q1, acc1, input_precision="tf32")

    if REG:
        for s in range(0, STEPS):
            a = raw * 1.000244140625 - ps
            raw = _gather(x_ptr, base, ihm, iw0, s + 1, C, H, W, KS, KWP, BK)
            b0 = tl.load(w0 + s * BK)
            if SPLIT:
                b1 = tl.load(w1 + s * BK)
            acc0 = tl.dot(a, b0, acc0, input_precision="tf32")
            if SPLIT:
                acc1 = tl.dot(a, b1, acc1, input_precision="tf32")
    else:
        for s in range(0, STEPS):
            xa = _gather(x_ptr, base, ihm, iw0, s, C, H, W, KS, KWP, BK)
            a = xa * 1.000244140625 - ps
            b0 = tl.load(w0 + s * BK)
            if SPLIT:
                b1 = tl.load(w1 + s * BK)
            acc0 = tl.dot(a, b0, acc0, input_precision="tf32")
            if SPLIT:
                acc1 = tl.dot(a, b1, acc1, input_precision="tf32")

    # The hint only steers the layout of the stores (lanes along the pixels):
    # their width stays limited by the divisibility of OH * OW, and images
    # begin at multiples of that.
    rowoff = tl.max_contiguous(n * (CO * OHW) + pix, BM)
    if SPLIT:
        bias0 = tl.load(b_ptr + co0)
        tl.store(o_ptr + (rowoff[:, None] + (co0 * OHW)[None, :]),
                 acc0 + bias0[None, :], mask=ok[:, None])
        bias1 = tl.load(b_ptr + co1)
        tl.store(o_ptr + (rowoff[:, None] + (co1 * OHW)[None, :]),
                 acc1 + bias1[None, :], mask=ok[:, None])
    else:
        cm = co0 < CO
        bias0 = tl.load(b_ptr + co0, mask=cm, other=0.0)
        tl.store(o_ptr + (rowoff[:, None] + (co0 * OHW)[None, :]),
                 acc0 + bias0[None, :], mask=ok[:, None] & cm[None, :])


@triton.jit
def conv_direct(x_ptr, w_ptr, b_ptr, o_ptr, M, C, H, W, CO, OH, OW,
                KS: tl.constexpr, ST: tl.constexpr, PD: tl.constexpr,
                BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    co = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = rows < M
    cm = co < CO
    ohw = OH * OW
    n = rows // ohw
    pix = rows - n * ohw
    oh = pix // OW
    ow = pix - oh * OW
    ih0 = oh * ST - PD
    iw0 = ow * ST - PD
    co64 = co.to(tl.int64)
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for c in range(0, C):
        for kh in range(0, KS):
            ih = ih0 + kh
            rok = ok & (ih >= 0) & (ih < H)
            xrow = ((n * C + c) * H + ih) * W
            wrow = ((co64 * C + c) * KS + kh) * KS
            for kw in range(0, KS):
                iw = iw0 + kw
                xv = tl.load(x_ptr + (xrow + iw), mask=rok & (iw >= 0) & (iw < W), other=0.0)
                wv = tl.load(w_ptr + (wrow + kw), mask=cm, other=0.0)
                acc += xv[:, None] * wv[None, :]
    bias = tl.load(b_ptr + co, mask=cm, other=0.0)
    acc += bias[None, :]
    off = (n * CO)[:, None] * ohw + (co64 * ohw)[None, :] + pix[:, None]
    tl.store(o_ptr + off, acc, mask=ok[:, None] & cm[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.special = (in_channels == 3 and out_channels == 96 and kernel_size == 11
                        and stride == 4 and padding == 2)
        self.packed = None

    def prepare(self):
        if not self.special:
            return
        w = self.conv.weight.detach()
        packed = torch.empty((_ROWS, _KP), device=w.device, dtype=torch.float32)
        pack_weights[(_ROWS,)](
            w, packed, self.out_channels,
            C=self.in_channels, KS=self.kernel_size, PD=self.padding,
            KWP=12, KW=_KW, KP=_KP, BLOCK=512, num_warps=4)
        self.packed = packed

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        ks, st, pd = self.kernel_size, self.stride, self.padding
        co = self.out_channels
        oh = (h + 2 * pd - ks) // st + 1
        ow = (w + 2 * pd - ks) // st + 1
        out = torch.empty((n, co, oh, ow), device=x.device, dtype=x.dtype)
        m = n * oh * ow
        if m == 0:
            return out
        weight = self.conv.weight.detach()
        bias = self.conv.bias.detach()
        limit = 2 ** 31 - 2 ** 22
        if (self.special and w % 2 == 0 and oh >= 2 and ow >= 2 and h < 65536 and w < 65536
                and n * c * h * w < limit and n * co * oh * ow < limit):
            if self.packed is None:
                self.prepare()
            grid = lambda meta: (triton.cdiv(m, meta["BM"]),)
            conv_gemm[grid](
                x, self.packed, bias, out, m,
                C=c, H=h, W=w, OH=oh, OW=ow, CO=co, KS=ks, ST=st, PD=pd,
                KWP=12, KW=_KW, KP=_KP)
        else:
            bm, bn = 64, 32
            conv_direct[(triton.cdiv(m, bm), triton.cdiv(co, bn))](
                x, weight, bias, out, m, c, h, w, co, oh, ow,
                KS=ks, ST=st, PD=pd, BM=bm, BN=bn, num_warps=4)
        return out
