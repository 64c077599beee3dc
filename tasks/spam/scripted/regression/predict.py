"""Classify messages: python predict.py --input CSV --output CSV. Reads model.pkl from here."""

import argparse
import csv
import pickle

import numpy as np

PARTS = 50


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    with open("model.pkl", "rb") as file:
        vectorizer, model = pickle.load(file)
    with open(args.input, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [f"{row['subject']} {row['body']}" for row in rows]
    labels = []
    for part in np.array_split(np.array(texts, dtype=object), PARTS):
        labels.extend(model.predict(vectorizer.transform(part)))
    with open(args.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message_id", "label"])
        writer.writerows(
            [row["message_id"], int(label)] for row, label in zip(rows, labels, strict=True)
        )


if __name__ == "__main__":
    main()
