import torch
from torch import nn
import triton
import triton.language as tl


@triton.jit
def _load_tile(x_rows, row_ok, i, pid, M: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
               EVEN: tl.constexpr, POLICY: tl.constexpr):
    cols = (pid + i * P) * C + tl.arange(0, C)
    if EVEN:
        x = tl.load(x_rows + cols[None, :], eviction_policy=POLICY)
    else:
        m = row_ok & ((cols < M) & (cols >= 0))[None, :]
        x = tl.load(x_rows + cols[None, :], mask=m, other=0.0, eviction_policy=POLICY)
    return x


@triton.jit
def _acc(s, q, x, pv, row_ok, i, pid, M: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
         EVEN: tl.constexpr):
    d = x.to(tl.float64) - pv
    if not EVEN:
        cols = (pid + i * P) * C + tl.arange(0, C)
        m = row_ok & ((cols < M) & (cols >= 0))[None, :]
        d = tl.where(m, d, 0.0)
    s = s + d
    q = q + d * d
    return s, q


@triton.jit
def _load_wb(w_ptr, b_ptr, i, pid, M: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
             EVEN: tl.constexpr):
    cols = (pid + i * P) * C + tl.arange(0, C)
    if EVEN:
        w = tl.load(w_ptr + cols)
        bb = tl.load(b_ptr + cols)
    else:
        m = (cols < M) & (cols >= 0)
        w = tl.load(w_ptr + cols, mask=m, other=0.0)
        bb = tl.load(b_ptr + cols, mask=m, other=0.0)
    return w, bb


@triton.jit
def _emit(y_rows, x, w, bb, hi, lo, rs, row_ok, i, pid, M: tl.constexpr, C: tl.constexpr,
          P: tl.constexpr, EVEN: tl.constexpr):
    cols = (pid + i * P) * C + tl.arange(0, C)
    y = ((x - hi) - lo) * rs * w[None, :] + bb[None, :]
    if EVEN:
        tl.store(y_rows + cols[None, :], y, cache_modifier=".cs")
    else:
        m = row_ok & ((cols < M) & (cols >= 0))[None, :]
        tl.store(y_rows + cols[None, :], y, mask=m, cache_modifier=".cs")


@triton.jit
def _ln_kernel(x_ptr, w_ptr, b_ptr, y_ptr, part_ptr, cnt_ptr, n_rows,
               M: tl.constexpr, T: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
               P: tl.constexpr, PB: tl.constexpr, L2T: tl.constexpr,
               EPS: tl.constexpr, INV_M: tl.constexpr, EVEN: tl.constexpr,
               STAGES: tl.constexpr):
    pid = tl.program_id(0)
    rows = tl.arange(0, R)
    rmask = rows < n_rows
    row_ok = rmask[:, None]
    row_off = rows.to(tl.int64) * M
    x_rows = x_ptr + row_off[:, None]
    y_rows = y_ptr + row_off[:, None]

    # pivot of each row: its first element
    pv1 = tl.load(x_ptr + row_off, mask=rmask, other=0.0).to(tl.float64)
    pv = pv1[:, None]

    # this program's tiles are pid + i * P, i = 0 .. nt - 1
    nt = (T - pid + P - 1) // P
    n_main = tl.maximum(nt - 6, 0)
    n_a = tl.maximum(n_main - L2T, 0)

    # ---- sweep 1 ----
    s = tl.zeros((R, C), dtype=tl.float64)
    q = tl.zeros((R, C), dtype=tl.float64)
    for i in tl.range(0, n_a, num_stages=STAGES):
        xa = _load_tile(x_rows, row_ok, i, pid, M, C, P, EVEN, "evict_first")
        s, q = _acc(s, q, xa, pv, row_ok, i, pid, M, C, P, EVEN)
    for i in tl.range(n_a, n_main, num_stages=STAGES):
        xb = _load_tile(x_rows, row_ok, i, pid, M, C, P, EVEN, "evict_last")
        s, q = _acc(s, q, xb, pv, row_ok, i, pid, M, C, P, EVEN)

    # the last six tiles stay in registers
    k0 = _load_tile(x_rows, row_ok, nt - 1, pid, M, C, P, EVEN, "evict_first")
    k1 = _load_tile(x_rows, row_ok, nt - 2, pid, M, C, P, EVEN, "evict_first")
    k2 = _load_tile(x_rows, row_ok, nt - 3, pid, M, C, P, EVEN, "evict_first")
    k3 = _load_tile(x_rows, row_ok, nt - 4, pid, M, C, P, EVEN, "evict_first")
    k4 = _load_tile(x_rows, row_ok, nt - 5, pid, M, C, P, EVEN, "evict_first")
    k5 = _load_tile(x_rows, row_ok, nt - 6, pid, M, C, P, EVEN, "evict_first")
    s, q = _acc(s, q, k0, pv, row_ok, nt - 1, pid, M, C, P, EVEN)
    s, q = _acc(s, q, k1, pv, row_ok, nt - 2, pid, M, C, P, EVEN)
    s, q = _acc(s, q, k2, pv, row_ok, nt - 3, pid, M, C, P, EVEN)
    s, q = _acc(s, q, k3, pv, row_ok, nt - 4, pid, M, C, P, EVEN)
    s, q = _acc(s, q, k4, pv, row_ok, nt - 5, pid, M, C, P, EVEN)
    s, q = _acc(s, q, k5, pv, row_ok, nt - 6, pid, M, C, P, EVEN)

    ssum = tl.sum(s, axis=1)
    qsum = tl.sum(q, axis=1)
    tl.store(part_ptr + rows * P + pid, ssum)
    tl.store(part_ptr + R * P + rows * P + pid, qsum)

    # weight and bias of the first tile of sweep 2, before the barrier
    w0, b0 = _load_wb(w_ptr, b_ptr, nt - 1, pid, M, C, P, EVEN)

    # ---- the grid barrier (counter grows by P per launch) ----
    if P > 1:
        tl.debug_barrier()
        old = tl.atomic_add(cnt_ptr, 1, sem="acq_rel", scope="gpu")
        target = (old // P + 1) * P
        while tl.atomic_add(cnt_ptr, 0, sem="acquire", scope="gpu") < target:
            pass
        tl.debug_barrier()

    # ---- statistics of every row ----
    pc = tl.arange(0, PB)
    poff = rows[:, None] * P + pc[None, :]
    pm = (rows[:, None] >= 0) & (pc[None, :] < P)
    ps = tl.load(part_ptr + poff, mask=pm, other=0.0, cache_modifier=".cg")
    pq = tl.load(part_ptr + R * P + poff, mask=pm, other=0.0, cache_modifier=".cg")
    md = tl.sum(ps, axis=1) * INV_M
    var = tl.sum(pq, axis=1) * INV_M - md * md
    var = tl.where(var < 0.0, 0.0, var)
    mean = pv1 + md
    hi1 = mean.to(tl.float32)
    lo1 = (mean - hi1.to(tl.float64)).to(tl.float32)
    rs1 = (1.0 / tl.sqrt(var + EPS)).to(tl.float32)
    hi = hi1[:, None]
    lo = lo1[:, None]
    rs = rs1[:, None]

    # ---- sweep 2, in reverse: registers, L2, DRAM ----
    w1, b1 = _load_wb(w_ptr, b_ptr, nt - 2, pid, M, C, P, EVEN)
    _emit(y_rows, k0, w0, b0, hi, lo, rs, row_ok, nt - 1, pid, M, C, P, EVEN)
    w2, b2 = _load_wb(w_ptr, b_ptr, nt - 3, pid, M, C, P, EVEN)
    _emit(y_rows, k1, w1, b1, hi, lo, rs, row_ok, nt - 2, pid, M, C, P, EVEN)
    w3, b3 = _load_wb(w_ptr, b_ptr, nt - 4, pid, M, C, P, EVEN)
    _emit(y_rows, k2, w2, b2, hi, lo, rs, row_ok, nt - 3, pid, M, C, P, EVEN)
    w4, b4 = _load_wb(w_ptr, b_ptr, nt - 5, pid, M, C, P, EVEN)
    _emit(y_rows, k3, w3, b3, hi, lo, rs, row_ok, nt - 4, pid, M, C, P, EVEN)
    w5, b5 = _load_wb(w_ptr, b_ptr, nt - 6, pid, M, C, P, EVEN)
    _emit(y_rows, k4, w4, b4, hi, lo, rs, row_ok, nt - 5, pid, M, C, P, EVEN)
    _emit(y_rows, k5, w5, b5, hi, lo, rs, row_ok, nt - 6, pid, M, C, P, EVEN)

    for j in tl.range(0, n_main, num_stages=STAGES):
        i2 = n_main - 1 - j
        xc = _load_tile(x_rows, row_ok, i2, pid, M, C, P, EVEN, "evict_first")
        wc, bc = _load_wb(w_ptr, b_ptr, i2, pid, M, C, P, EVEN)
        _emit(y_rows, xc, wc, bc, hi, lo, rs, row_ok, i2, pid, M, C, P, EVEN)


_KEEP = 6            # tiles held in registers (fixed in the kernel's text)
_TILE = 4096         # elements of a tile over all its rows
_GROUP = 16          # rows of one launch


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)
        self._scratch = {}

    def _get_scratch(self, device):
        key = str(device)
        found = self._scratch.get(key)
        if found is None:
            if device.type == "cuda":
                p = torch.cuda.get_device_properties(device).multi_processor_count
            else:
                p = 1
            part = torch.empty(2 * _GROUP * p, dtype=torch.float64, device=device)
            cnt = torch.zeros(1, dtype=torch.int64, device=device)
            found = (p, part, cnt)
            self._scratch[key] = found
        return found

    def forward(self, x):
        x = x.contiguous()
        weight = self.norm.weight
        bias = self.norm.bias
        m = weight.numel()
        y = torch.empty_like(x)
        if x.numel() == 0:
            return y
        n = x.numel() // m
        x2 = x.view(n, m)
        y2 = y.view(n, m)
        p, part, cnt = self._get_scratch(x.device)
        extra = {"launch_cooperative_grid": True} if x.is_cuda else {}
        for g in range(0, n, _GROUP):
            rows = min(_GROUP, n - g)
            r = triton.next_power_of_2(rows)
            c = _TILE // r
            t = (m + c - 1) // c
            even = (rows == r) and (m % c == 0) and (t // p >= _KEEP)
            _ln_kernel[(p,)](
                x2[g:g + rows], weight, bias, y2[g:g + rows], part, cnt, rows,
                M=m, T=t, R=r, C=c, P=p, PB=triton.next_power_of_2(p), L2T=14,
                EPS=float(self.norm.eps), INV_M=1.0 / m, EVEN=even, STAGES=6,
                num_warps=16, **extra,
            )
        return y
