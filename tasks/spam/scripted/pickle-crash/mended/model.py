"""The model: words of subject and body, weighted, into a logistic regression."""

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier


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
