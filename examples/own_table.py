"""From a real table to a Tensor Train in a loop of your own: numbers, categories, missing values.

    python examples/own_table.py

Adult: who earned above 50,000 dollars in 1994. A few seconds. Needs pandas, and
the extra `torch`.
"""

import argparse

import torch
from sklearn.metrics import log_loss, roc_auc_score

from polyadic import maps
from polyadic.datasets import fetch_adult
from polyadic.nn import TensorNetwork


def main(n_rows: int | None = None, n_epochs: int = 3) -> float:
    """Train on the first rows, all by default; return the log-loss on the test rows."""
    torch.manual_seed(0)
    people = fetch_adult(split="publisher")
    X, y = people.X_train[:n_rows], people.y_train[:n_rows]

    # 1. One map per column, fitted on the training rows: hats for numbers, one-hot for categories.
    fitted = [maps.OneHot() if kind == "category" else maps.Hat(n_knots=24) for kind in X.dtypes]
    for column, name in zip(fitted, X):
        column.fit(values(X[name]))
    print("Widths of the columns:", ", ".join(f"{name} {m.dim}" for m, name in zip(fitted, X)))

    # 2. One array (n, d_n) per column, as wide as its map.
    phi, phi_test = features(fitted, X), features(fitted, people.X_test)

    # 3. A loop of plain PyTorch.
    network = TensorNetwork("tt", dims=[m.dim for m in fitted], rank=4)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003, weight_decay=1e-5)
    labels = torch.tensor(y == ">50K", dtype=torch.float32)[:, None]
    for _ in range(n_epochs):
        for rows in torch.randperm(len(labels)).split(128):
            raw = network([own[rows] for own in phi])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(raw, labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    # 4. The test rows have gone through the same maps.
    with torch.no_grad():
        probability = torch.sigmoid(network(phi_test)).numpy()[:, 0]
    auc, loss = (score(people.y_test == ">50K", probability) for score in (roc_auc_score, log_loss))
    print(f"On {len(probability):,} test rows: AUC {auc:.4f}, log-loss {loss:.4f}")
    return loss


def features(fitted, table):
    """Return phi of each column; a missing value has the constant element alone."""
    columns = (values(table[name]) for name in table)
    return [torch.tensor(m.dense(x), dtype=torch.float32) for m, x in zip(fitted, columns)]


def values(column):
    """Return a column as its map takes it: numbers, or codes of categories, -1 where missing."""
    if column.dtype == "category":
        return column.cat.codes.to_numpy()
    return column.to_numpy(dtype=float)


if __name__ == "__main__":
    torch.set_num_threads(1)  # arrays of a batch are small: threads would wait for each other
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--n-rows", type=int, help="train on the first rows only")
    options.add_argument("--n-epochs", type=int, default=3)
    main(**vars(options.parse_args()))
