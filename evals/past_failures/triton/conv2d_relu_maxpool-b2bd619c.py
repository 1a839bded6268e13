import torch
from torch import nn
import triton
import triton.language as tl


# ----------------------------------------------------------------------------
# Prepass, one launch: x[n,3,224,224] fp32 -> xs[n,57,57,48] fp16, and one exponent per chunk row.
# Padded row = 4*q + r, padded column = 4*X + col (padding 2 in front);
# position inside of a chunk: c*16 + r*4 + col. A row is multiplied by 2^(ex - 127).
# ----------------------------------------------------------------------------
@triton.jit
def _pack_x(x_ptr, xs_ptr, ex_ptr, n_img):
    pid = tl.program_id(0)
    n = tl.minimum(pid // 57, n_img - 1)     # an odd batch: the last image twice
    q = pid % 57
    rc = tl.arange(0, 16)                    # c*4 + r, c == 3 is padding
    i = tl.arange(0, 256)                    # padded column
    iy = q * 4 + rc % 4 - 2
    ix = i - 2
    ok = ((rc < 12) & (iy >= 0) & (iy < 224))[:, None] & ((ix >= 0) & (ix < 224))[None, :]
    off = ((rc // 4) * 50176 + iy * 224)[:, None] + ix[None, :]
    v = tl.load(x_ptr + n.to(tl.int64) * 150528 + off, mask=ok, other=0.0,
                eviction_policy="evict_first")
    m = tl.max(tl.max(tl.abs(v), axis=1), axis=0)
    fits = (m == 0.0) | ((m >= 0.0009765625) & (m <= 32768.0))
    bits = m.to(tl.int32, bitcast=True)
    e = 268 - (bits >> 23)                   # brings the maximum into [2^14, 2^15)
    e = tl.minimum(tl.maximum(e, 13), 187)
    e = tl.where(fits, 127, e)
    tl.store(ex_ptr + pid, e)
    scale = (e << 23).to(tl.float32, bitcast=True)
    h = (v * scale).to(tl.float16)
    h = tl.reshape(h, (16, 64, 4))
    h = tl.permute(h, (1, 0, 2))
    h = tl.reshape(h, (64, 64))
    xx = tl.arange(0, 64)
    k = tl.arange(0, 64)
    ptr = xs_ptr + pid.to(tl.int64) * 2736 + (xx * 48)[:, None] + k[None, :]
    tl.store(ptr, h, mask=(xx < 57)[:, None] & (k < 48)[None, :])


# ----------------------------------------------------------------------------
# Weight packing, per channel scaled by a power of two (winv is its inverse):
# wp[dq 3][channel 96][k 144], k = dx*48 + c*16 + r*4 + col, kh = 4 dq + r, kw = 4 dx + col.
# ----------------------------------------------------------------------------
@triton.jit
def _pack_w(w_ptr, wp_ptr, winv_ptr):
    o = tl.program_id(0)
    t = tl.arange(0, 512)
    dq = t // 144
    k = t % 144
    dx = k // 48
    rem = k % 48
    c = rem // 16
    kh = dq * 4 + (rem // 4) % 4
    kw = dx * 4 + rem % 4
    ok = (t < 432) & (kh < 11) & (kw < 11)
    v = tl.load(w_ptr + o * 363 + c * 121 + kh * 11 + kw, mask=ok, other=0.0)
    m = tl.max(tl.abs(v), axis=0)
    bits = m.to(tl.int32, bitcast=True)
    e = 254 - (bits >> 23)           # brings the maximum into [1, 2)
    e = tl.minimum(tl.maximum(e, 1), 253)
    e = tl.where(m == 0.0, 127, e)
    scale = (e << 23).to(tl.float32, bitcast=True)
    inv = ((254 - e) << 23).to(tl.float32, bitcast=True)
    tl.store(winv_ptr + o, inv)
    h = (v * scale).to(tl.float16)
    tl.store(wp_ptr + dq * 13824 + o * 144 + k, h, mask=t < 432)


# Pooled row at which a cut of the work lies; every image costs 54 steps and 3 to start.
@triton.jit
def _row_at(b):
    rem = b % 57
    return ((b // 57) * 27 + tl.maximum(rem - 2, 0) // 2).to(tl.int32)


# Step s of a block: step l inside of a part, pair of images, first pooled row of the part.
@triton.jit
def _locate(s, s1, pair0, p0):
    t = s - s1
    first = t < 0
    l = tl.where(first, s, t % 57)
    pair = tl.where(first, pair0, pair0 + 1 + t // 57)
    p = tl.where(first, p0, 0)
    return l, pair, p


# ----------------------------------------------------------------------------
# Main kernel. Tile row 64*i + 16*w + 8*e + g is conv column 14*w + 2*g + e of image 2*pair + i.
# ----------------------------------------------------------------------------
@triton.jit
def _pool_store(top, inv0, inv1, winv_ptr, bias_ptr, out_ptr, n_img, pair, row,
                NC: tl.constexpr, C0: tl.constexpr):
    z = tl.permute(tl.reshape(top, (8, 2, 8, NC)), (3, 0, 2, 1))   # [ch, i*4 + w, g, e]
    ev, od = tl.split(z)                                           # [ch, 8, g]
    both = tl.maximum(ev, od)
    # shifted[g] = ev[g + 1] (g = 7: anything), by splitting even and odd g
    xa, xb = tl.split(tl.reshape(ev, (NC, 8, 4, 2)))               # g = 0,2,4,6 | 1,3,5,7
    xaa, xab = tl.split(tl.reshape(xa, (NC, 8, 2, 2)))             # g = 0,4 | 2,6
    x0, x4 = tl.split(xaa)
    s2 = tl.join(x4, x4)                                           # follows g = 0, 4
    s4 = tl.reshape(tl.join(xab, s2), (NC, 8, 4))                  # follows g = 0,2,4,6
    s8 = tl.reshape(tl.join(xb, s4), (NC, 8, 8))                   # follows g = 0..7
    y = tl.reshape(tl.maximum(both, s8), (NC, 64))                 # column 32 i + 8 w + u

    ch = C0 + tl.arange(0, NC)
    col = tl.arange(0, 64)
    i = col // 32
    u = col % 8
    q = 7 * ((col // 8) % 4) + u
    inv = tl.where(i == 0, inv0, inv1)
    wv = tl.load(winv_ptr + ch)
    bs = tl.load(bias_ptr + ch)
    y = (y * wv[:, None]) * inv[None, :] + bs[:, None]
    y = tl.maximum(y, 0.0)
    ok = (u < 7) & (q < 27) & ((2 * pair + i) < n_img)
    base = out_ptr + pair.to(tl.int64) * 139968 + row * 27
    ptr = base + (ch * 729)[:, None] + (i * 69984 + q)[None, :]
    tl.store(ptr, y, mask=(ch < 96)[:, None] & ok[None, :])


@triton.jit
def _conv_pool(xs_ptr, ex_ptr, wp_ptr, winv_ptr, bias_ptr, out_ptr, n_img, n_pair,
               STAGES: tl.constexpr):
    # this block's run of pooled rows of pairs of images, pairs one after the other
    pid = tl.program_id(0)
    nblk = tl.num_programs(0)
    cost = tl.cast(n_pair, tl.int64) * 57
    r0 = _row_at((pid * cost) // nblk)
    r1 = _row_at(((pid + 1) * cost) // nblk)
    rows = r1 - r0
    pair0 = r0 // 27
    p0 = r0 % 27
    head = tl.minimum(27 - p0, rows)
    s1 = 2 * head + 3                 # steps in the first pair
    rest = rows - head
    tail = rest % 27
    steps = s1 + (rest // 27) * 57 + tl.where(tail > 0, 2 * tail + 3, 0)
    steps = tl.where(rows > 0, steps, 0)

    k = tl.arange(0, 128)
    kr = tl.arange(0, 16)
    ca = tl.arange(0, 64)
    cb = tl.arange(0, 32)

    # resident weights [k, channel]: K 128 + 16, channels 64 + 32
    pwa = wp_ptr + k[:, None] + (ca * 144)[None, :]
    pwb = wp_ptr + 9216 + k[:, None] + (cb * 144)[None, :]
    pva = wp_ptr + 128 + kr[:, None] + (ca * 144)[None, :]
    pvb = wp_ptr + 9344 + kr[:, None] + (cb * 144)[None, :]
    wa0 = tl.load(pwa)
    wa1 = tl.load(pwa + 13824)
    wa2 = tl.load(pwa + 27648)
    wb0 = tl.load(pwb)
    wb1 = tl.load(pwb + 13824)
    wb2 = tl.load(pwb + 27648)
    va0 = tl.load(pva)
    va1 = tl.load(pva + 13824)
    va2 = tl.load(pva + 27648)
    vb0 = tl.load(pvb)
    vb1 = tl.load(pvb + 13824)
    vb2 = tl.load(pvb + 27648)

    mi = tl.arange(0, 128)
    px = 14 * ((mi // 16) % 4) + 2 * (mi % 8) + (mi // 8) % 2
    px = tl.minimum(px, 54)
    mo = (mi // 64) * 155952 + px * 48
    off_a = mo[:, None] + k[None, :]
    off_b = mo[:, None] + (kr + 128)[None, :]

    old_a = tl.zeros((128, 64), dtype=tl.float32)
    old_b = tl.zeros((128, 32), dtype=tl.float32)
    mid_a = tl.zeros((128, 64), dtype=tl.float32)
    mid_b = tl.zeros((128, 32), dtype=tl.float32)
    best_a = tl.zeros((128, 64), dtype=tl.float32)
    best_b = tl.zeros((128, 32), dtype=tl.float32)

    # exponents of the coming row (of both images) and of the row before
    any_work = rows > 0
    nx0 = tl.load(ex_ptr + pair0 * 114 + 2 * p0, mask=any_work, other=127)
    nx1 = tl.load(ex_ptr + pair0 * 114 + 2 * p0 + 57, mask=any_work, other=127)
    pe0 = nx0
    pe1 = nx1

    for s in tl.range(0, steps, num_stages=STAGES):
        l, pair, p = _locate(s, s1, pair0, p0)
        base = xs_ptr + (pair * 114 + 2 * p + l).to(tl.int64) * 2736
        xa = tl.load(base + off_a)                     # [2 x 64 pixels, 128 k]
        xb = tl.load(base + off_b)                     # [2 x 64 pixels, 16 k]

        e0 = nx0
        e1 = nx1
        ln, pairn, pn = _locate(tl.minimum(s + 1, steps - 1), s1, pair0, p0)
        rown = pairn * 114 + 2 * pn + ln
        nx0 = tl.load(ex_ptr + rown)
        nx1 = tl.load(ex_ptr + rown + 57)

        # rare: another power of two than the row before
        if (e0 != pe0) | (e1 != pe1):
            d0 = tl.minimum(tl.maximum(e0 - pe0, -100), 100) + 127
            d1 = tl.minimum(tl.maximum(e1 - pe1, -100), 100) + 127
            f0 = (d0 << 23).to(tl.float32, bitcast=True)
            f1 = (d1 << 23).to(tl.float32, bitcast=True)
            f = tl.where(mi < 64, f0, f1)[:, None]
            old_a = old_a * f
            old_b = old_b * f
            mid_a = mid_a * f
            mid_b = mid_b * f
            best_a = best_a * f
            best_b = best_b * f
        pe0 = e0
        pe1 = e1

        # this chunk row completes the conv row two above ...
        done_a = tl.dot(xa, wa2, old_a, input_precision="tf32")
        done_b = tl.dot(xa, wb2, old_b, input_precision="tf32")
        done_a = tl.dot(xb, va2, done_a, input_precision="tf32")
        done_b = tl.dot(xb, vb2, done_b, input_precision="tf32")
        even = (l % 2) == 0
        top_a = tl.maximum(best_a, done_a)
        top_b = tl.maximum(best_b, done_b)
        if even & (l >= 4):
            inv0 = ((254 - e0) << 23).to(tl.float32, bitcast=True)
            inv1 = ((254 - e1) << 23).to(tl.float32, bitcast=True)
            row = p + (l - 4) // 2
            _pool_store(top_a, inv0, inv1, winv_ptr, bias_ptr, out_ptr, n_img, pair, row,
                        NC=64, C0=0)
            _pool_store(top_b, inv0, inv1, winv_ptr, bias_ptr, out_ptr, n_img, pair, row,
                        NC=32, C0=64)
        best_a = tl.where(even, done_a, top_a)
        best_b = tl.where(even, done_b, top_b)

        # ... continues the one above, and begins its own. What a part leaves behind in its last
        # two steps only reaches rows -2 and -1 of the next part, which are never stored.
        old_a = tl.dot(xa, wa1, mid_a, input_precision="tf32")
        old_b = tl.dot(xa, wb1, mid_b, input_precision="tf32")
        old_a = tl.dot(xb, va1, old_a, input_precision="tf32")
        old_b = tl.dot(xb, vb1, old_b, input_precision="tf32")
        mid_a = tl.dot(xa, wa0, input_precision="tf32")
        mid_b = tl.dot(xa, wb0, input_precision="tf32")
        mid_a = tl.dot(xb, va0, mid_a, input_precision="tf32")
        mid_b = tl.dot(xb, vb0, mid_b, input_precision="tf32")


# ----------------------------------------------------------------------------
# Any other shape: plain fp32.
# ----------------------------------------------------------------------------
@triton.jit
def _direct(x_ptr, w_ptr, b_ptr, o_ptr, total, H, W, OC, PH, PW,
            C: tl.constexpr, KS: tl.constexpr, ST: tl.constexpr, PD: tl.constexpr,
            PK: tl.constexpr, PS: tl.constexpr,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    KT: tl.constexpr = C * KS * KS
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    o = tl.program_id(1) * BN + tl.arange(0, BN)
    mm = m < total
    om = o < OC
    plane = PH * PW
    n = m // plane
    rem = m - n * plane
    ph = rem // PW
    pw = rem - ph * PW
    bias = tl.load(b_ptr + o, mask=om, other=0.0)
    best = tl.zeros((BM, BN), dtype=tl.float32)
    for t in range(PK * PK):
        y0 = (ph * PS + t // PK) * ST - PD
        x0 = (pw * PS + t % PK) * ST - PD
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k0 in range(0, KT, BK):
            kk = k0 + tl.arange(0, BK)
            km = kk < KT
            c = kk // (KS * KS)
            kr = kk % (KS * KS)
            iy = y0[:, None] + (kr // KS)[None, :]
            ix = x0[:, None] + (kr % KS)[None, :]
            ok = mm[:, None] & km[None, :] & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
            a = tl.load(x_ptr + ((n * C)[:, None] + c[None, :]) * H * W + iy * W + ix,
                        mask=ok, other=0.0)
            wt = tl.load(w_ptr + (o * KT)[None, :] + kk[:, None],
                         mask=km[:, None] & om[None, :], other=0.0)
            acc = tl.dot(a, wt, acc, input_precision="ieee")
        best = tl.maximum(best, acc + bias[None, :])
    ptr = o_ptr + ((n * OC)[:, None] + o[None, :]) * plane + rem[:, None]
    tl.store(ptr, best, mask=mm[:, None] & om[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        # only its weights are used
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.pool_size = pool_size
        self.pool_stride = pool_stride
        self.special = (in_channels == 3 and out_channels == 96 and kernel_size == 11 and stride == 4
                        and padding == 2 and pool_size == 3 and pool_stride == 2)
        self.packed = None
        self.packed_inv = None

    def prepare(self):
        if not self.special:
            return
        w = self.conv.weight
        packed = torch.empty(3 * 96 * 144, dtype=torch.float16, device=w.device)
        inv = torch.empty(96, dtype=torch.float32, device=w.device)
        _pack_w[(96,)](w, packed, inv, num_warps=4)
        self.packed = packed
        self.packed_inv = inv

    def forward(self, x):
        n, c, h, w = x.shape
        ks, st, pd = self.kernel_size, self.stride, self.padding
        pk, ps = self.pool_size, self.pool_stride
        oh = (h + 2 * pd - ks) // st + 1
        ow = (w + 2 * pd - ks) // st + 1
        ph = (oh - pk) // ps + 1
        pw = (ow - pk) // ps + 1
        oc = self.out_channels
        out = torch.empty((n, oc, ph, pw), dtype=torch.float32, device=x.device)
        if out.numel() == 0:
            return out
        weight = self.conv.weight
        bias = self.conv.bias

        if self.special and h == 224 and w == 224:
            if self.packed is None:
                self.prepare()
            pairs = (n + 1) // 2
            xs = torch.empty(pairs * 114 * 2736, dtype=torch.float16, device=x.device)
            ex = torch.empty(pairs * 114, dtype=torch.int32, device=x.device)
            _pack_x[(pairs * 114,)](x, xs, ex, n, num_warps=4)
            _conv_pool[(132,)](xs, ex, self.packed, self.packed_inv, bias, out, n, pairs,
                               STAGES=3, num_warps=8)
            return out

        total = n * ph * pw
        BM, BN, BK = 32, 32, 32
        grid = (triton.cdiv(total, BM), triton.cdiv(oc, BN))
        _direct[grid](x, weight, bias, out, total, h, w, oc, ph, pw,
                      C=c, KS=ks, ST=st, PD=pd, PK=pk, PS=ps,
                      BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=1)
        return out
