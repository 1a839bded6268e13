"""LayerNorm over long rows in CUDA: 64 blocks a row add up the sum and the squares around the row's first element, then
every element is normalised. Built by torch's `load_inline`."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__device__ double of_block(double value) {
  __shared__ double parts[32];
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  __syncthreads();  // what another call has left there was read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0.0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) value += parts[warp];
  return value;
}

// Grid (blocks, rows). The distance from one element of the row is as small as the spread of its values.
__global__ void moments(const float* __restrict__ x, double* __restrict__ sums, int64_t width) {
  const float* from = x + blockIdx.y * width;
  const float origin = from[0];
  float sum = 0.0f, squares = 0.0f;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x) {
    const float distance = from[i] - origin;
    sum += distance;
    squares += distance * distance;
  }
  const double all = of_block(sum), all_squares = of_block(squares);
  if (threadIdx.x == 0) {
    atomicAdd(sums + 2 * blockIdx.y, all);
    atomicAdd(sums + 2 * blockIdx.y + 1, all_squares);
  }
}

__global__ void normalise(const float* __restrict__ x, const double* __restrict__ sums,
                          const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
                          int64_t width, double eps) {
  const float* from = x + blockIdx.y * width;
  const double offset = sums[2 * blockIdx.y] / width;
  const double variance = sums[2 * blockIdx.y + 1] / width - offset * offset;
  const float scale = rsqrt(variance + eps), origin = from[0], shift = offset;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x)
    y[blockIdx.y * width + i] = (from[i] - origin - shift) * scale * weight[i] + bias[i];
}

torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto y = torch::empty_like(x);
  auto sums = torch::zeros({x.size(0), 2}, x.options().dtype(torch::kFloat64));
  const int64_t width = weight.numel();
  auto stream = at::cuda::getCurrentCUDAStream();
  moments<<<dim3(64, x.size(0)), 512, 0, stream>>>(x.data_ptr<float>(), sums.data_ptr<double>(), width);
  normalise<<<dim3(64, x.size(0)), 512, 0, stream>>>(x.data_ptr<float>(), sums.data_ptr<double>(),
      weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), width, eps);
  return y;
}
"""
module = load_inline(
    name="plain_layernorm_cuda",
    cpp_sources="torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=SOURCE,
    functions=["layernorm"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        return module.layernorm(x, self.norm.weight, self.norm.bias, self.norm.eps)
