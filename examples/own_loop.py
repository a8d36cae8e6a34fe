"""Train a Tensor Train in a loop of your own: ten lines of plain PyTorch."""

import sys

import torch

from polyadic.nn import TensorNetwork

torch.manual_seed(0)
x = 2 * torch.rand(1000, 4) - 1
y = x[:, :1] * x[:, 1:2] + x[:, 2:3] - x[:, 3:] ** 2
n_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 30

phi = torch.stack([x**0, x, x**2], dim=2)  # feature vectors [1, x, x^2]: (n, N, d)
network = TensorNetwork("tt", dims=[3] * 4, rank=4)
optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(n_epochs):
    for rows in torch.randperm(len(x)).split(50):
        loss = torch.nn.functional.mse_loss(network(phi[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
print(f"share of the variance left: {(network(phi) - y).var() / y.var():.1e}")
