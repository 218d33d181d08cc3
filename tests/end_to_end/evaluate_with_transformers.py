"""Prints the accuracy that transformers finds for a saved model: FOLDER ROWS MAX_LENGTH, on the synthetic evaluation rows
(recipe: tests/data/README.md)."""
import sys

import torch
from transformers import AutoModelForSequenceClassification

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def number(name, i):
    x = 0xCBF29CE484222325
    for byte in name.encode():
        x = ((x ^ byte) * 0x100000001B3) & MASK
    x = (x + (i + 1) * GOLDEN) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def main():
    folder, rows, longest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = model.config.vocab_size - 16
    correct = 0
    for row in range(rows):
        label = number("synthetic/eval.rows", row) % 5
        length = longest // 4 + number("synthetic/eval.rows", rows + row) % (longest - longest // 4 + 1)
        ids = []
        for j in range(length):
            t = number("synthetic/eval.tokens", row * longest + j)
            ids.append(1 if j == 0 else 4 + label if t % 5 == 0 else 16 + (t >> 8) % words)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, length, dtype=torch.long)).logits
        correct += int(logits.argmax()) == label
    print(correct / rows)


main()
