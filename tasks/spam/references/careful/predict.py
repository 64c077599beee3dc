"""Classify messages: python predict.py --input CSV --output CSV. Reads model.pkl from here."""

import argparse
import csv
import pickle

from features import matrix, texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    with open("model.pkl", "rb") as file:
        vectorizer, model, threshold = pickle.load(file)
    with open(args.input, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    scores = model.decision_function(matrix(vectorizer.transform(texts(rows)), rows))
    with open(args.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message_id", "label"])
        writer.writerows(
            [row["message_id"], int(score > threshold)]
            for row, score in zip(rows, scores, strict=True)
        )


if __name__ == "__main__":
    main()
