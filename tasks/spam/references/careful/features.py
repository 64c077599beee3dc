"""What a message looks like at the moment it lands, as numbers."""

import html

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer

MOJIBAKE_MARKS = ("Ã", "â€", "Â")
AGE_EDGES = (15, 30, 60, 400, 1500, 5000)
COUNT_EDGES = (1, 2, 4, 8)
HOUR_EDGES = (7, 9, 18, 21)
ENVELOPE_WEIGHT = 0.2
"""Brings the columns to the size of word weights, which the solver likes."""


def clean(text):
    """Undo HTML entities, and UTF-8 that was read as Windows-1252."""
    text = html.unescape(text)
    if any(mark in text for mark in MOJIBAKE_MARKS):
        try:
            return text.encode("cp1252").decode("utf-8")
        except UnicodeError:
            return text
    return text


def texts(rows):
    return [clean(f"{row['subject']} . {row['body']}") for row in rows]


def new_vectorizer():
    return TfidfVectorizer(min_df=5, sublinear_tf=True)


def envelope(rows):
    """One column for each step of age, counts and hour; a missing age has a column of its own."""
    columns = []
    ages = [row["sender_domain_age_days"] for row in rows]
    columns.append(_steps([int(age) if age else 0 for age in ages], AGE_EDGES))
    columns.append(np.array([[age == ""] for age in ages]))
    for name in ("link_count", "attachment_count", "reply_count"):
        columns.append(_steps([int(row[name]) for row in rows], COUNT_EDGES))
    columns.append(_steps([int(row["received_at"][11:13]) for row in rows], HOUR_EDGES))
    return csr_matrix(np.hstack(columns) * ENVELOPE_WEIGHT)


def _steps(values, edges):
    return np.array(values)[:, None] >= np.array(edges)


def matrix(words, rows):
    return hstack([words, envelope(rows)], format="csr")
