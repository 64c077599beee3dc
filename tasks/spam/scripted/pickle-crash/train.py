"""Train the spam filter: python train.py --data PATH. Leaves model.pkl here."""

import argparse
import csv
import pickle

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score


class TextModel:
    """Takes and judges messages as dictionaries of their columns."""

    def __init__(self):
        self.vectorizer = TfidfVectorizer(min_df=3, sublinear_tf=True)
        self.classifier = SGDClassifier(
            loss="log_loss", alpha=4e-6, max_iter=8, tol=None, average=True, random_state=0
        )

    def fit(self, rows, labels):
        self.classifier.fit(self.vectorizer.fit_transform(self._texts(rows)), labels)
        return self

    def predict(self, rows):
        return self.classifier.predict(self.vectorizer.transform(self._texts(rows)))

    def _texts(self, rows):
        return [f"{row['subject']} {row['body']}" for row in rows]


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
