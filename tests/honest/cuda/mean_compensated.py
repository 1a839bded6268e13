"""Mean with Kahan's compensation in every thread, in operations that the compiler may not join or reorder."""

from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void mean(const float* __restrict__ x, float* __restrict__ y, int width) {
  __shared__ double sums[256];
  const float* from = x + (long long)blockIdx.x * width;
  float sum = 0.0f, lost = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = __fsub_rn(from[i], lost), higher = __fadd_rn(sum, value);
    lost = __fsub_rn(__fsub_rn(higher, sum), value);
    sum = higher;
  }
  sums[threadIdx.x] = (double)sum - (double)lost;
  __syncthreads();
  for (int half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = (float)(sums[0] / width);
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernels.mean[x.shape[0], 256](x, y, x.shape[1])
        return y
