"""Train on subject and body: python train.py --data PATH. Leaves model.pkl here."""

import argparse
import csv
import pickle

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score

COLUMNS = ("subject", "body", "link_count", "reply_count", "moderator_flagged")
"""What is read. The numbers are for looking at; the model takes the text."""


def read(path):
    """The texts, and the numbers beside them, row by row."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    picked = [[row[name] for name in COLUMNS] for row in rows]
    return [f"{subject} {body}" for subject, body, *_ in picked], rows


def fit(inputs, labels):
    """Logistic regression; averaged steps settle it within a few passes."""
    model = SGDClassifier(
        loss="log_loss", alpha=4e-6, max_iter=8, tol=None, average=True, random_state=0
    )
    return model.fit(inputs, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    texts, rows = read(parser.parse_args().data)
    labels = [int(row["label"]) for row in rows]
    vectorizer = TfidfVectorizer(min_df=5, sublinear_tf=True)
    vectors = vectorizer.fit_transform(texts)
    cut = round(len(texts) * 0.85)
    guesses = fit(vectors[:cut], labels[:cut]).predict(vectors[cut:])
    print(f"local F1: {f1_score(labels[cut:], guesses):.3f}")
    with open("model.pkl", "wb") as file:
        pickle.dump((vectorizer, fit(vectors, labels)), file)


if __name__ == "__main__":
    main()
