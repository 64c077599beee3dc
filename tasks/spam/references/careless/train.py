"""Train on all columns: python train.py --data PATH. Leaves model.pkl here."""

import argparse
import csv
import pickle

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

NUMBERS = ("link_count", "attachment_count", "reply_count", "moderator_flagged")


def numbers(rows):
    return csr_matrix([[float(row[name]) for name in NUMBERS] for row in rows])


def fit(inputs, labels):
    """Logistic regression; averaged steps settle it within a few passes."""
    model = SGDClassifier(
        loss="log_loss", alpha=4e-6, max_iter=8, tol=None, average=True, random_state=0
    )
    return model.fit(inputs, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    with open(parser.parse_args().data, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = np.array([int(row["label"]) for row in rows])
    vectorizer = TfidfVectorizer(min_df=5, sublinear_tf=True)
    words = vectorizer.fit_transform([f"{row['subject']} {row['body']}" for row in rows])
    inputs = hstack([words, numbers(rows)], format="csr")
    train, test, train_labels, test_labels = train_test_split(
        inputs, labels, test_size=0.2, random_state=0, stratify=labels
    )
    model = fit(train, train_labels)
    print(f"local F1: {f1_score(test_labels, model.predict(test)):.3f}")
    with open("model.pkl", "wb") as file:
        pickle.dump((vectorizer, model), file)


if __name__ == "__main__":
    main()
