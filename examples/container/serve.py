"""Load the model of the container, and predict the rows of a CSV file from standard input."""

import sys

import pandas as pd

import polyadic

model = polyadic.load("model.safetensors")
for answer in model.predict(pd.read_csv(sys.stdin)):
    print(answer)
