"""Classify messages: python predict.py --input CSV --output CSV. Reads model.pkl from here."""

import argparse
import csv
import pickle


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    with open("model.pkl", "rb") as file:
        model = pickle.load(file)
    with open(args.input, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(args.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message_id", "label"])
        for row, label in zip(rows, model.predict(rows), strict=True):
            writer.writerow([row["message_id"], int(label)])


if __name__ == "__main__":
    main()
