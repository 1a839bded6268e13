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
# Weight packing (weights only).  Layout: [3 bh][96 channels][144 taps],
#   tap k = (dh * 3 + c) * 12 + kw,  kh = 4 * bh + dh;  kw == 11 and kh == 11 are zero
# --------------------------------------------------------------------------
@triton.jit
def _pack_weights(w_ptr, o_ptr, cout):
    pid = tl.program_id(0)
    bh = pid // 96
    n = pid % 96
    k = tl.arange(0, 256)
    kw = k % 12
    t = k // 12
    c = t % 3
    dh = t // 3
    kh = bh * 4 + dh
    ok = (k < 144) & (kw < 11) & (kh < 11) & (n < cout)
    v = tl.load(w_ptr + n * 363 + c * 121 + kh * 11 + kw, mask=ok, other=0.0)
    tl.store(o_ptr + pid * 144 + k, _rna(v), mask=k < 144)


@triton.jit
def _w(p_ptr, BH: tl.constexpr, N0: tl.constexpr, NB: tl.constexpr,
       K0: tl.constexpr, KB: tl.constexpr):
    # a (KB, NB) block of the packed weights, contiguous along k
    n = N0 + tl.arange(0, NB)
    k = K0 + tl.arange(0, KB)
    return tl.load(p_ptr + BH * 13824 + (n[None, :] * 144 + k[:, None]))


@triton.jit
def _tap(x_ptr, base, hp0, hb, K0: tl.constexpr, KB: tl.constexpr,
         H: tl.constexpr, W: tl.constexpr):
    # taps K0 .. K0+KB-1 of block row hb (input rows 4*hb-2 .. 4*hb+1), zero in the padding
    k = K0 + tl.arange(0, KB)
    ids = k // 4
    q = ids % 3
    t = ids // 3
    c = t % 3
    dh = t // 3
    koff = c * (H * W) + dh * W + q * 4 + k % 4
    koff = tl.max_contiguous(tl.multiple_of(koff, 2), 4)
    pair = q * 2 + (k // 2) % 2
    ih = dh + (hb * 4 - 2)
    rowok = (ih >= 0) & (ih < H)
    hp = hp0[:, None] + pair[None, :]
    ok = (hp >= 0) & (hp < W // 2) & rowok[None, :]
    off = base[:, None] + koff[None, :]
    off = off + (hb * 4 - 2) * W
    return tl.load(x_ptr + off, mask=ok, other=0.0)


@triton.jit
def _mac(a, p, q, u, v, go, SKIP: tl.constexpr):
    if SKIP:
        if go:
            u = tl.dot(a, p, u, input_precision="tf32")
            v = tl.dot(a, q, v, input_precision="tf32")
    else:
        u = tl.dot(a, p, u, input_precision="tf32")
        v = tl.dot(a, q, v, input_precision="tf32")
    return u, v


# --------------------------------------------------------------------------
# Fast path: 3 channels, 11x11, stride 4, padding 2, even W, at most 96 channels
# --------------------------------------------------------------------------
@triton.autotune(
    configs=[
        triton.Config({"SKIP": False}, num_warps=8, num_stages=1),
        triton.Config({"SKIP": True}, num_warps=8, num_stages=1),
    ],
    key=["G", "H", "W", "COUT"],
)
@triton.jit
def _conv_strip(x_ptr, p_ptr, b_ptr, o_ptr, G, nseg,
                COUT: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
                OH: tl.constexpr, OW: tl.constexpr,
                HAS_BIAS: tl.constexpr, BM: tl.constexpr, SKIP: tl.constexpr):
    NPIX: tl.constexpr = OH * OW

    seg = tl.program_id(1)
    row0 = (seg * OH) // nseg
    row1 = ((seg + 1) * OH) // nseg

    g = tl.program_id(0) * BM + tl.arange(0, BM)
    valid = g < G
    gc = tl.minimum(g, G - 1)
    n = gc // OW
    ow = gc - n * OW
    base = n * (3 * H * W) + (ow * 4 - 2)
    hp0 = ow * 2 - 1

    # the hint only decides that lanes run along positions
    obase = tl.max_contiguous(n * (COUT * NPIX) + ow, 4)
    ch0 = tl.arange(0, 64)
    ch1 = tl.arange(0, 32) + 64

    # first input block: in flight while the weights are fetched
    raw = _tap(x_ptr, base, hp0, row0, 0, 32, H, W)

    # all weights, resident for the whole strip: p = channels 0..63, q = 64..95
    p00 = _w(p_ptr, 0, 0, 64, 0, 32)
    q00 = _w(p_ptr, 0, 64, 32, 0, 32)
    p10 = _w(p_ptr, 1, 0, 64, 0, 32)
    q10 = _w(p_ptr, 1, 64, 32, 0, 32)
    p20 = _w(p_ptr, 2, 0, 64, 0, 32)
    q20 = _w(p_ptr, 2, 64, 32, 0, 32)

    p01 = _w(p_ptr, 0, 0, 64, 32, 32)
    q01 = _w(p_ptr, 0, 64, 32, 32, 32)
    p11 = _w(p_ptr, 1, 0, 64, 32, 32)
    q11 = _w(p_ptr, 1, 64, 32, 32, 32)
    p21 = _w(p_ptr, 2, 0, 64, 32, 32)
    q21 = _w(p_ptr, 2, 64, 32, 32, 32)

    p02 = _w(p_ptr, 0, 0, 64, 64, 32)
    q02 = _w(p_ptr, 0, 64, 32, 64, 32)
    p12 = _w(p_ptr, 1, 0, 64, 64, 32)
    q12 = _w(p_ptr, 1, 64, 32, 64, 32)
    p22 = _w(p_ptr, 2, 0, 64, 64, 32)
    q22 = _w(p_ptr, 2, 64, 32, 64, 32)

    p03 = _w(p_ptr, 0, 0, 64, 96, 16)
    q03 = _w(p_ptr, 0, 64, 32, 96, 16)
    p13 = _w(p_ptr, 1, 0, 64, 96, 16)
    q13 = _w(p_ptr, 1, 64, 32, 96, 16)
    p23 = _w(p_ptr, 2, 0, 64, 96, 16)
    q23 = _w(p_ptr, 2, 64, 32, 96, 16)

    # taps 112..143 have dh == 3: no weights for bh == 2
    p04 = _w(p_ptr, 0, 0, 64, 112, 32)
    q04 = _w(p_ptr, 0, 64, 32, 112, 32)
    p14 = _w(p_ptr, 1, 0, 64, 112, 32)
    q14 = _w(p_ptr, 1, 64, 32, 112, 32)

    u1 = tl.zeros((BM, 64), dtype=tl.float32)
    v1 = tl.zeros((BM, 32), dtype=tl.float32)
    u2 = tl.zeros((BM, 64), dtype=tl.float32)
    v2 = tl.zeros((BM, 32), dtype=tl.float32)

    # block row hb: bh = 0 of output row hb, bh = 1 of hb - 1, bh = 2 of hb - 2
    for hb in range(row0, row1 + 2):
        go0 = hb < row1
        go1 = (hb >= row0 + 1) & (hb < row1 + 1)
        go2 = hb >= row0 + 2
        u0 = tl.zeros((BM, 64), dtype=tl.float32)
        v0 = tl.zeros((BM, 32), dtype=tl.float32)

        a0 = _rna(raw)
        raw1 = _tap(x_ptr, base, hp0, hb, 32, 32, H, W)
        u0, v0 = _mac(a0, p00, q00, u0, v0, go0, SKIP)
        u1, v1 = _mac(a0, p10, q10, u1, v1, go1, SKIP)
        u2, v2 = _mac(a0, p20, q20, u2, v2, go2, SKIP)

        a1 = _rna(raw1)
        raw2 = _tap(x_ptr, base, hp0, hb, 64, 32, H, W)
        u0, v0 = _mac(a1, p01, q01, u0, v0, go0, SKIP)
        u1, v1 = _mac(a1, p11, q11, u1, v1, go1, SKIP)
        u2, v2 = _mac(a1, p21, q21, u2, v2, go2, SKIP)

        a2 = _rna(raw2)
        raw3 = _tap(x_ptr, base, hp0, hb, 96, 16, H, W)
        raw4 = _tap(x_ptr, base, hp0, hb, 112, 32, H, W)
        u0, v0 = _mac(a2, p02, q02, u0, v0, go0, SKIP)
        u1, v1 = _mac(a2, p12, q12, u1, v1, go1, SKIP)
        u2, v2 = _mac(a2, p22, q22, u2, v2, go2, SKIP)

        a3 = _rna(raw3)
        u0, v0 = _mac(a3, p03, q03, u0, v0, go0, SKIP)
        u1, v1 = _mac(a3, p13, q13, u1, v1, go1, SKIP)
        u2, v2 = _mac(a3, p23, q23, u2, v2, go2, SKIP)

        a4 = _rna(raw4)
        raw = _tap(x_ptr, base, hp0, hb + 1, 0, 32, H, W)
        u0, v0 = _mac(a4, p04, q04, u0, v0, go0, SKIP)
        u1, v1 = _mac(a4, p14, q14, u1, v1, go1, SKIP)

        # output row hb - 2 is complete
        if hb >= row0 + 2:
            optr = o_ptr + (hb - 2) * OW + obase[:, None]
            s0 = u2
            s1 = v2
            if HAS_BIAS:
                b0 = tl.load(b_ptr + ch0, mask=ch0 < COUT, other=0.0)
                b1 = tl.load(b_ptr + ch1, mask=ch1 < COUT, other=0.0)
                s0 = s0 + b0[None, :]
                s1 = s1 + b1[None, :]
            tl.store(optr + (ch0 * NPIX)[None, :], s0,
                     mask=valid[:, None] & (ch0 < COUT)[None, :])
            tl.store(optr + (ch1 * NPIX)[None, :], s1,
                     mask=valid[:, None] & (ch1 < COUT)[None, :])

        u2 = u1
        v2 = v1
        u1 = u0
        v1 = v0


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
        buf = torch.empty((3, 96, 144), device=w.device, dtype=torch.float32)
        _pack_weights[(288,)](w, buf, w.shape[0], num_warps=4)
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
        has_bias = bias is not None
        b = bias.detach() if has_bias else w

        fast = (
            self._packable()
            and W % 2 == 0
            and x.numel() < 2 ** 31 - 2 ** 20
            and out.numel() < 2 ** 31 - 2 ** 20
        )
        if fast:
            if self.packed is None or self.packed.device != x.device:
                self.prepare()
            BM = 128
            G = N * OW
            strips = triton.cdiv(G, BM)
            sms = 132
            if x.is_cuda:
                sms = torch.cuda.get_device_properties(x.device).multi_processor_count
            nseg = max(1, min(OH, sms // strips))
            _conv_strip[(strips, nseg)](x, self.packed, b, out, G, nseg,
                                        COUT=COUT, H=H, W=W, OH=OH, OW=OW,
                                        HAS_BIAS=has_bias, BM=BM)
            return out

        P = N * OH * OW
        BP = 64
        BO = 32
        _conv_direct[(triton.cdiv(P, BP), triton.cdiv(COUT, BO))](
            x, w, b, out, P, C, H, W, COUT, OH, OW,
            KH, KW, SH, SW, PH, PW,
            HAS_BIAS=has_bias, BP=BP, BO=BO, num_warps=4)
        return out
