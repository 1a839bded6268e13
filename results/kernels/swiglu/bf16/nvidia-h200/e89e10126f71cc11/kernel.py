import torch
from torch import nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

PACK = 128  # gate rows (and up rows) in one packed tile of the weights


@triton.jit
def _silu_mul(g, u):
    return (g / (1.0 + tl.exp(-g))) * u


@triton.jit
def _halves(t, R: tl.constexpr, C: tl.constexpr):
    # left and right half of the columns of t (R, C)
    t = tl.reshape(t, (R, 2, C // 2))
    t = tl.permute(t, (0, 2, 1))
    a, b = tl.split(t)
    return a, b


@triton.jit
def _tile_coords(tile, per_group, num_m, GROUP_M: tl.constexpr):
    group = tile // per_group
    first_m = group * GROUP_M
    size = min(num_m - first_m, GROUP_M)
    r = tile - group * per_group
    pid_m = first_m + (r % size)
    pid_n = r // size
    return pid_m, pid_n


def _set_blocks(nargs):
    bm = nargs["BM"]
    bn = nargs["BN"]
    bk = nargs["BK"]
    nargs["x_desc"].block_shape = [bm, bk]
    if nargs["FUSED"]:
        nargs["w_desc"].block_shape = [2 * bn, bk]
        nargs["y_desc"].block_shape = [bm, bn // 2]
    else:
        nargs["w_desc"].block_shape = [bn, bk]
        nargs["y_desc"].block_shape = [bm, bn]


def _config(group, fused, stages):
    return triton.Config(
        {"BM": 128, "BN": PACK, "BK": 64, "GROUP_M": group, "FUSED": fused},
        num_stages=stages,
        num_warps=8,
        pre_hook=_set_blocks,
    )


@triton.autotune(
    configs=[
        _config(16, True, 4),
        _config(8, True, 4),
        _config(16, True, 3),
        _config(16, False, 3),
    ],
    key=["N", "K"],
)
@triton.jit
def _swiglu_tma(
    x_desc,
    w_desc,
    y_desc,
    M,
    N,
    K,
    NUM_SMS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP_M: tl.constexpr,
    FUSED: tl.constexpr,
):
    pid = tl.program_id(0)
    num_m = tl.cdiv(M, BM)
    num_n = tl.cdiv(N, BN)
    k_tiles = tl.cdiv(K, BK)
    num_tiles = num_m * num_n
    per_group = GROUP_M * num_n

    # a second counter for the epilogue keeps its indices independent of those of the loads,
    # which run ahead into the next tile
    tile_c = pid - NUM_SMS

    for tile in tl.range(pid, num_tiles, NUM_SMS, flatten=True):
        pid_m, pid_n = _tile_coords(tile, per_group, num_m, GROUP_M)
        off_m = pid_m * BM
        off_w = pid_n * (2 * BN)

        if FUSED:
            acc = tl.zeros((BM, 2 * BN), dtype=tl.float32)
            for k in range(k_tiles):
                xb = x_desc.load([off_m, k * BK])
                wb = w_desc.load([off_w, k * BK])
                acc = tl.dot(xb, wb.T, acc, input_precision="tf32")

            tile_c += NUM_SMS
            cm, cn = _tile_coords(tile_c, per_group, num_m, GROUP_M)
            row = cm * BM
            col = cn * BN
            g, u = _halves(acc, BM, 2 * BN)
            g0, g1 = _halves(g, BM, BN)
            u0, u1 = _halves(u, BM, BN)
            y0 = _silu_mul(g0, u0).to(tl.bfloat16)
            y_desc.store([row, col], y0)
            y1 = _silu_mul(g1, u1).to(tl.bfloat16)
            y_desc.store([row, col + BN // 2], y1)
        else:
            acc_g = tl.zeros((BM, BN), dtype=tl.float32)
            acc_u = tl.zeros((BM, BN), dtype=tl.float32)
            for k in range(k_tiles):
                xb = x_desc.load([off_m, k * BK])
                gb = w_desc.load([off_w, k * BK])
                ub = w_desc.load([off_w + BN, k * BK])
                acc_g = tl.dot(xb, gb.T, acc_g, input_precision="tf32")
                acc_u = tl.dot(xb, ub.T, acc_u, input_precision="tf32")

            tile_c += NUM_SMS
            cm, cn = _tile_coords(tile_c, per_group, num_m, GROUP_M)
            row = cm * BM
            col = cn * BN
            y0 = _silu_mul(acc_g, acc_u).to(tl.bfloat16)
            y_desc.store([row, col], y0)


@triton.jit
def _swiglu_any(
    x_ptr,
    g_ptr,
    u_ptr,
    y_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    pid = tl.program_id(0)
    num_n = tl.cdiv(N, BN)
    pid_m = pid // num_n
    pid_n = pid % num_n
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    mask_m = rm < M
    mask_n = rn < N
    x_ptrs = x_ptr + (rm[:, None].to(tl.int64) * K + rk[None, :])
    w_off = rn[None, :].to(tl.int64) * K + rk[:, None]
    g_ptrs = g_ptr + w_off
    u_ptrs = u_ptr + w_off
    acc_g = tl.zeros((BM, BN), dtype=tl.float32)
    acc_u = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        mask_k = rk < K - k
        xb = tl.load(x_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        wm = mask_k[:, None] & mask_n[None, :]
        gb = tl.load(g_ptrs, mask=wm, other=0.0)
        ub = tl.load(u_ptrs, mask=wm, other=0.0)
        acc_g = tl.dot(xb, gb, acc_g, input_precision="tf32")
        acc_u = tl.dot(xb, ub, acc_u, input_precision="tf32")
        x_ptrs += BK
        g_ptrs += BK
        u_ptrs += BK
    y = _silu_mul(acc_g, acc_u).to(tl.bfloat16)
    y_ptrs = y_ptr + (rm[:, None].to(tl.int64) * N + rn[None, :])
    tl.store(y_ptrs, y, mask=mask_m[:, None] & mask_n[None, :])


class ModelNew(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)
        self.packed = None
        self.sms = 0

    def _packable(self):
        w = self.gate.weight
        n, k = w.shape
        if not w.is_cuda or n < 64 or k < 64 or n % 8 != 0 or k % 8 != 0:
            return False
        return torch.cuda.get_device_capability(w.device)[0] >= 9

    def prepare(self):
        self.packed = None
        if not self._packable():
            return
        gate = self.gate.weight.detach()
        up = self.up.weight.detach()
        n, k = gate.shape
        blocks = (n + PACK - 1) // PACK
        full = n // PACK
        rest = n - full * PACK
        packed = torch.zeros((blocks, 2, PACK, k), dtype=torch.bfloat16, device=gate.device)
        if full > 0:
            packed[:full, 0].copy_(gate[: full * PACK].reshape(full, PACK, k))
            packed[:full, 1].copy_(up[: full * PACK].reshape(full, PACK, k))
        if rest > 0:
            packed[full, 0, :rest].copy_(gate[full * PACK :])
            packed[full, 1, :rest].copy_(up[full * PACK :])
        self.packed = packed.view(blocks * 2 * PACK, k)
        self.sms = torch.cuda.get_device_properties(gate.device).multi_processor_count

    def forward(self, x):
        n, k = self.gate.weight.shape
        m = x.numel() // k
        y = torch.empty(x.shape[:-1] + (n,), dtype=torch.bfloat16, device=x.device)
        if m == 0:
            return y

        if self._packable() and x.data_ptr() % 16 == 0:
            if self.packed is None or self.packed.device != x.device:
                self.prepare()
            w = self.packed
            x_desc = TensorDescriptor(x.view(m, k), [m, k], [k, 1], [128, 64])
            w_desc = TensorDescriptor(w, [w.shape[0], k], [k, 1], [2 * PACK, 64])
            y_desc = TensorDescriptor(y.view(m, n), [m, n], [n, 1], [128, PACK // 2])
            tiles = ((m + 127) // 128) * ((n + PACK - 1) // PACK)
            grid = (min(self.sms, tiles),)
            _swiglu_tma[grid](x_desc, w_desc, y_desc, m, n, k, NUM_SMS=self.sms)
        else:
            bm, bn, bk = 64, 64, 32
            grid = (((m + bm - 1) // bm) * ((n + bn - 1) // bn),)
            _swiglu_any[grid](
                x,
                self.gate.weight,
                self.up.weight,
                y,
                m,
                n,
                k,
                BM=bm,
                BN=bn,
                BK=bk,
                num_warps=4,
                num_stages=2,
            )
        return y
