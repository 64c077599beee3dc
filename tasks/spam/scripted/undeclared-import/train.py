"""Train on subject and body: python train.py --data PATH. Leaves model.pkl here."""

import argparse
import csv
import pickle

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score
from unidecode import unidecode

VALIDATION_SHARE = 0.15


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [unidecode(f"{row['subject']} {row['body']}") for row in rows], [
        int(row["label"]) for row in rows
    ]


def fit(inputs, labels):
    """Logistic regression; averaged steps settle it within a few passes."""
    model = SGDClassifier(
        loss="log_loss", alpha=4e-6, max_iter=8, tol=None, average=True, random_state=0
    )
    return model.fit(inputs, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    texts, labels = read(parser.parse_args().data)

    # The rows come in order of arrival, so the last ones stand in for what comes later.
    vectorizer = TfidfVectorizer(min_df=5, sublinear_tf=True)
    vectors = vectorizer.fit_transform(texts)
    cut = round(len(texts) * (1 - VALIDATION_SHARE))
    guesses = fit(vectors[:cut], labels[:cut]).predict(vectors[cut:])
    print(f"rows: {len(texts)}, of which validation: {len(texts) - cut}")
    print(f"local F1: {f1_score(labels[cut:], guesses):.3f}")

    model = fit(vectors, labels)
    with open("model.pkl", "wb") as file:
        pickle.dump((vectorizer, model), file)


if __name__ == "__main__":
    main()
