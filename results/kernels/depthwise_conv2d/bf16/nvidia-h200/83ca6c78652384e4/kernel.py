import torch
from torch import nn
import triton
import triton.language as tl


@triton.jit
def _load_row(p, y, grp, H: tl.constexpr, W: tl.constexpr):
    # y [RG], grp [BG]; returns the packed row [RG, BG, 8] and its outer neighbours [RG, BG]
    rows = (y >= 0) & (y < H)
    ok = rows[:, None] & (grp < (W // 8))[None, :]
    o2 = (y * W)[:, None] + (grp * 8)[None, :]
    o3 = o2[:, :, None] + tl.arange(0, 8)[None, None, :]
    x = tl.load(p + o3, mask=ok[:, :, None], other=0.0)
    lt = tl.load(p + (o2 - 1), mask=ok & (grp > 0)[None, :], other=0.0)
    rt = tl.load(p + (o2 + 8), mask=ok & (grp < (W // 8 - 1))[None, :], other=0.0)
    return x, lt, rt


@triton.jit
def _join4(a, b, c, d, RG: tl.constexpr, BG: tl.constexpr):
    # four [RG, BG] -> [RG, BG, 4] in the order a, b, c, d
    t = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.reshape(t, (RG, BG, 4))


@triton.jit
def _expand(x, lt, rt, RG: tl.constexpr, BG: tl.constexpr):
    # the row in fp32, shifted by one column to either side: all within a thread's registers
    xf = x.to(tl.float32)
    lf = lt.to(tl.float32)
    rf = rt.to(tl.float32)
    ev, od = tl.split(tl.reshape(xf, (RG, BG, 4, 2)))          # 0 2 4 6 | 1 3 5 7
    e04, e26 = tl.split(tl.reshape(ev, (RG, BG, 2, 2)))        # 0 4 | 2 6
    e15, e37 = tl.split(tl.reshape(od, (RG, BG, 2, 2)))        # 1 5 | 3 7
    e0, e4 = tl.split(e04)
    e2, e6 = tl.split(e26)
    e1, e5 = tl.split(e15)
    e3, e7 = tl.split(e37)
    lo = _join4(lf, e1, e3, e5, RG, BG)
    hi = _join4(e2, e4, e6, rf, RG, BG)
    xl = tl.reshape(tl.join(lo, ev), (RG, BG, 8))              # l 0 1 2 3 4 5 6
    xr = tl.reshape(tl.join(od, hi), (RG, BG, 8))              # 1 2 3 4 5 6 7 r
    return xl, xf, xr


@triton.jit
def _store_row(p, acc, y, grp, H: tl.constexpr, W: tl.constexpr):
    ok = (y < H)[:, None] & (grp < (W // 8))[None, :]
    o2 = (y * W)[:, None] + (grp * 8)[None, :]
    o3 = o2[:, :, None] + tl.arange(0, 8)[None, None, :]
    tl.store(p + o3, acc.to(tl.bfloat16), mask=ok[:, :, None], cache_modifier=".cs")


@triton.autotune(
    configs=[
        triton.Config({"RG": 4}, num_warps=8),
        triton.Config({"RG": 2}, num_warps=4),
        triton.Config({"RG": 8}, num_warps=16),
        triton.Config({"RG": 4}, num_warps=4),
    ],
    key=["H", "W", "BG"],
)
@triton.jit
def dw3x3(x_ptr, w_ptr, y_ptr,
          C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
          BG: tl.constexpr, RG: tl.constexpr):
    STRIPS: tl.constexpr = (H + 4 * RG - 1) // (4 * RG)
    CT: tl.constexpr = (W // 8 + BG - 1) // BG
    pid = tl.program_id(0)
    strip = pid % STRIPS
    rest = pid // STRIPS
    ct = rest % CT
    plane = rest // CT
    c = plane % C
    base = plane.to(tl.int64) * (H * W)
    xp = x_ptr + base
    yp = y_ptr + base

    row = strip * (4 * RG) + tl.arange(0, RG) * 4
    grp = ct * BG + tl.arange(0, BG)

    # all loads first
    x0, l0, r0 = _load_row(xp, row - 1, grp, H, W)
    x1, l1, r1 = _load_row(xp, row, grp, H, W)
    x2, l2, r2 = _load_row(xp, row + 1, grp, H, W)
    x3, l3, r3 = _load_row(xp, row + 2, grp, H, W)
    x4, l4, r4 = _load_row(xp, row + 3, grp, H, W)
    x5, l5, r5 = _load_row(xp, row + 4, grp, H, W)

    wp = w_ptr + c * 9
    w00 = tl.load(wp).to(tl.float32)
    w01 = tl.load(wp + 1).to(tl.float32)
    w02 = tl.load(wp + 2).to(tl.float32)
    w10 = tl.load(wp + 3).to(tl.float32)
    w11 = tl.load(wp + 4).to(tl.float32)
    w12 = tl.load(wp + 5).to(tl.float32)
    w20 = tl.load(wp + 6).to(tl.float32)
    w21 = tl.load(wp + 7).to(tl.float32)
    w22 = tl.load(wp + 8).to(tl.float32)

    a, b, d = _expand(x0, l0, r0, RG, BG)
    acc0 = a * w00 + b * w01 + d * w02

    a, b, d = _expand(x1, l1, r1, RG, BG)
    acc0 = acc0 + a * w10 + b * w11 + d * w12
    acc1 = a * w00 + b * w01 + d * w02

    a, b, d = _expand(x2, l2, r2, RG, BG)
    acc0 = acc0 + a * w20 + b * w21 + d * w22
    acc1 = acc1 + a * w10 + b * w11 + d * w12
    acc2 = a * w00 + b * w01 + d * w02
    _store_row(yp, acc0, row, grp, H, W)

    a, b, d = _expand(x3, l3, r3, RG, BG)
    acc1 = acc1 + a * w20 + b * w21 + d * w22
    acc2 = acc2 + a * w10 + b * w11 + d * w12
    acc3 = a * w00 + b * w01 + d * w02
    _store_row(yp, acc1, row + 1, grp, H, W)

    a, b, d = _expand(x4, l4, r4, RG, BG)
    acc2 = acc2 + a * w20 + b * w21 + d * w22
    acc3 = acc3 + a * w10 + b * w11 + d * w12
    _store_row(yp, acc2, row + 2, grp, H, W)

    a, b, d = _expand(x5, l5, r5, RG, BG)
    acc3 = acc3 + a * w20 + b * w21 + d * w22
    _store_row(yp, acc3, row + 3, grp, H, W)


@triton.jit
def dw_generic(x_ptr, w_ptr, y_ptr, total, C, H, W, OH, OW, P,
               K: tl.constexpr, BLOCK: tl.constexpr):
    idx = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = idx < total
    ox = idx % OW
    rest = idx // OW
    oy = rest % OH
    plane = rest // OH
    c = plane % C
    xbase = plane * H * W
    wbase = c * (K * K)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for ky in range(0, K):
        iy = oy + ky - P
        rowok = live & (iy >= 0) & (iy < H)
        for kx in range(0, K):
            ix = ox + kx - P
            ok = rowok & (ix >= 0) & (ix < W)
            v = tl.load(x_ptr + xbase + iy * W + ix, mask=ok, other=0.0).to(tl.float32)
            wv = tl.load(w_ptr + wbase + (ky * K + kx), mask=live, other=0.0).to(tl.float32)
            acc += v * wv
    tl.store(y_ptr + idx, acc.to(tl.bfloat16), mask=live)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=padding, groups=channels, bias=False, dtype=torch.bfloat16
        )
        self.ksize = int(kernel_size)
        self.pad = int(padding)

    def forward(self, x):
        w = self.conv.weight
        x = x.contiguous()
        n, c, h, wd = x.shape
        ks, p = self.ksize, self.pad
        oh = h + 2 * p - ks + 1
        ow = wd + 2 * p - ks + 1
        y = torch.empty((n, c, oh, ow), dtype=x.dtype, device=x.device)
        total = y.numel()
        if total == 0:
            return y
        planes = n * c
        if ks == 3 and p == 1 and wd % 8 == 0 and h * wd < 2 ** 30 and planes * h < 2 ** 30:
            bg = min(64, triton.next_power_of_2(wd // 8))
            ctiles = triton.cdiv(wd // 8, bg)

            def grid(meta):
                return (triton.cdiv(h, 4 * meta["RG"]) * ctiles * planes,)

            dw3x3[grid](x, w, y, C=c, H=h, W=wd, BG=bg)
            return y
        block = 256
        dw_generic[(triton.cdiv(total, block),)](
            x, w, y, total, c, h, wd, oh, ow, p, K=ks, BLOCK=block, num_warps=4)
        return y
