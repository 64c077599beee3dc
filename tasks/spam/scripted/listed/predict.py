"""Classify messages: python predict.py --input CSV --output CSV. Reads model.pkl from here."""

import argparse
import csv
import pickle

from train import read


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    with open("model.pkl", "rb") as file:
        vectorizer, model = pickle.load(file)
    texts, rows = read(args.input)
    labels = model.predict(vectorizer.transform(texts))
    with open(args.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message_id", "label"])
        writer.writerows(
            [row["message_id"], int(label)] for row, label in zip(rows, labels, strict=True)
        )


if __name__ == "__main__":
    main()
