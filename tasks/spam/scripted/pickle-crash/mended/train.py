"""Train the spam filter: python train.py --data PATH. Leaves model.pkl here."""

import argparse
import csv
import pickle

from model import TextModel
from sklearn.metrics import f1_score


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    with open(parser.parse_args().data, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = [int(row["label"]) for row in rows]
    cut = round(len(rows) * 0.85)
    model = TextModel().fit(rows[:cut], labels[:cut])
    print(f"local F1: {f1_score(labels[cut:], model.predict(rows[cut:])):.3f}")
    with open("model.pkl", "wb") as file:
        pickle.dump(model, file)


if __name__ == "__main__":
    main()
