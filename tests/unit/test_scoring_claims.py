"""The estimate a submission gives of itself."""

from __future__ import annotations

import pytest

from orchestrator.scoring.claims import expected_f1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Expected F1: 0.80", 0.80),
        ("Expected F1 on the holdout: **0.79**", 0.79),
        ("I expect an F1 of about 0.78 in production.", 0.78),
        ("We estimate 0.81 F1 on unseen messages.", 0.81),
        ("| metric | value |\n|---|---|\n| Expected F1 | 0.77 |", 0.77),
        ("Expected F1-score between 0.76 and 0.80", 0.78),
        ("Expected F1 score: 0.78–0.82", 0.80),
        ("expected F1 = 0.80 ± 0.02", 0.80),
        ("Expected F1: ~80 %", 0.80),
        ("expected f1: .8", 0.8),
        ("Expected F1 of 0.80 at threshold 0.42", 0.80),
        ("Expected F1 (class 1, 5-fold): 0.80", 0.80),
        ("Validation F1: 0.83\n\nExpected holdout F1: 0.80", 0.80),
        ("Validation F1 0.95 with moderator_flagged, expected F1 0.79 without", 0.79),
        ("F1: 0.801", 0.801),
        ("Validation F1: 0.83\nCross-validated F1: 0.83", 0.83),
        ("Validation F1: 0.83\nCross-validated F1: 0.81", None),
        ("Precision 0.9, recall 0.8", None),
        ("", None),
        ("Expected F1: as good as can be", None),
        ("Expected F1 at F1@0.5: 0.8", 0.8),
        ("Expected F1: 1.25", None),
        ("Expected F1: 0.80.", 0.80),
    ],
)
def test_expected_f1(text, value):
    assert expected_f1(text) == (None if value is None else pytest.approx(value))


REPORT = """
              precision    recall  f1-score   support

           0       0.97      0.98      0.97     41600
           1       0.85      0.80      0.82      8400

    accuracy                           0.95     50000
   macro avg       0.91      0.89      0.90     50000
weighted avg       0.95      0.95      0.95     50000
"""
MODELS = """
| model | precision | recall | F1 |
|---|---|---|---|
| naive Bayes | 0.71 | 0.80 | 0.75 |
| logistic regression | 0.85 | 0.78 | 0.81 |
"""
STYLES = {
    # as numbers are written
    "a decimal comma": ("Expected F1: 0,93", 0.93),
    "percent": ("Expected F1: 80.5%", 0.805),
    "percent with a comma": ("Erwarteter F1: 80,5 %", 0.805),
    "percent as a word": ("We expect an F1 of about 80 percent.", 0.80),
    "less than one percent": ("Expected F1: 0.80%", None),
    "a bare number": ("Expected F1: 80", None),
    "one": ("Expected F1: 1.0", 1.0),
    "too large": ("Expected F1: 1.2", None),
    "about": ("Expected F1 ≈ 0.81", 0.81),
    "the template": ("Expected F1: 0.xx", None),
    "a digit left open": ("Expected F1: 0.8x", None),
    "in LaTeX": ("We expect $F_1 = 0.81$ on new mail.", 0.81),
    "in LaTeX, braces": ("We expect $F_{1} = 0.81$ on new mail.", 0.81),
    "as a variable": ("expected f1_score = 0.81", 0.81),
    # ranges and spreads
    "a range": ("Expected F1: 0.78–0.82", 0.80),
    "a range in words": ("I expect the F1 to be between 0.78 and 0.82.", 0.80),
    "a range in percent": ("Expected F1: 78-82 %", 0.80),
    "an interval": ("95% confidence interval for the expected F1: [0.78, 0.82]", 0.80),
    "a figure with an interval": ("Expected F1: 0.81 (95% CI 0.78-0.82)", 0.81),
    "the level before it": ("Expected F1 with 95% confidence: 0.81", 0.81),
    "ranging": ("Over the folds F1 ranges from 0.78 to 0.82.", 0.80),
    "mean and spread": ("5-fold cross-validation: F1 = 0.812 ± 0.014", 0.812),
    "mean and spread in brackets": ("Mean CV F1: 0.812 (+/- 0.014)", 0.812),
    "mean and std": ("CV F1: mean 0.812 (std 0.014)", 0.812),
    "the spread alone": ("The standard deviation of F1 is 0.02.", None),
    "a spread beside it": ("F1 was 0.81 over five folds, std of F1 0.02.", 0.81),
    # what moved
    "improved": ("F1 improved from 0.80 to 0.91.", None),
    "improved, by an arrow": ("Tuning the threshold moved F1 0.80 -> 0.91", None),
    "expected to fall": ("We expect F1 to drop from 0.83 to 0.78 on later messages.", 0.78),
    "improved, then expected": ("F1 improved from 0.80 to 0.91. Expected F1: 0.85", 0.85),
    "by how much": ("Expected F1 will be 0.02 lower than in validation.", None),
    "dropped by": ("I expect F1 to drop by 0.03.", None),
    # another class, another average
    "macro first": ("Expected macro F1: 0.91\n\nExpected F1: 0.80", 0.80),
    "macro alone": ("Expected macro F1: 0.91", None),
    "macro, in a variable": ("f1_macro: 0.91", None),
    "macro behind": ("Expected F1 (macro): 0.91", None),
    "macro behind the figure": ("Expected F1: 0.91 (macro)", None),
    "weighted": ("The weighted F1 is 0.95", None),
    "weighted average": ("Weighted-average F1: 0.95", None),
    "spam and macro": ("F1 (spam) = 0.80, macro F1 = 0.91", 0.80),
    "both classes": ("F1 is 0.97 for ham and 0.80 for spam.", 0.80),
    "both classes in brackets": ("F1: 0.97 (ham), 0.80 (spam)", 0.80),
    "the other class": ("F1 of the ham class: 0.97", None),
    "the class by number": ("F1 for class 0: 0.97. F1 for class 1: 0.80.", 0.80),
    "training": ("Training F1: 0.99, validation F1: 0.83", 0.83),
    "the other class in a table": (
        "| metric | score |\n|---|---|\n| F1 (spam) | 0.82 |\n| F1 (ham) | 0.97 |",
        0.82,
    ),
    # other numbers near by
    "a list of folds": ("F1 scores of 0.81, 0.82, 0.80, 0.83 over the folds", None),
    "a subtraction": ("Expected F1: 0.79 - 0.02 = 0.77", None),
    "its formula": ("F1 = 2 * 0.85 * 0.78 / (0.85 + 0.78) = 0.81", None),
    "two thresholds": ("F1 at 0.5: 0.77, F1 at 0.35: 0.81", None),
    "out of one": ("Expected F1: 0.80/1.00", None),
    "a threshold in brackets": ("Expected F1 (at threshold 0.42): 0.80", 0.80),
    "a threshold before": ("At a threshold of 0.42 we expect F1 to be high.", None),
    "a threshold after": ("We estimate 0.81 F1 on unseen messages with threshold 0.3", 0.81),
    "a share of the data": ("Expected F1 on the last 15 % of messages: 0.80", 0.80),
    "a share of the data, no figure": ("F1 was measured on 20% of the rows.", None),
    "a split": ("We expect the F1 of an 80/20 split to hold: 0.81", 0.81),
    "a seed": ("F1 with seed 0.5", None),
    "a baseline": ("Baseline F1 0.55, expected F1 0.80", 0.80),
    "a target": ("Target F1: 0.90", None),
    "other metrics after": ("Expected F1 0.80, precision 0.90, recall 0.72", 0.80),
    "other metrics before": ("Expected precision 0.90, recall 0.72, F1 0.80", 0.80),
    "names after figures": ("We expect 0.90 precision, 0.72 recall and 0.80 F1.", 0.80),
    "pairs without commas": ("precision 0.90 recall 0.72 F1 0.80 accuracy 0.95", 0.80),
    "in one row": ("Expected precision / recall / F1: 0.90 / 0.72 / 0.80", 0.80),
    "in one sentence": ("Precision, recall and F1 are 0.90, 0.72 and 0.80.", 0.80),
    "in one row, too few": ("Expected precision / recall / F1: 0.90 / 0.72", None),
    "two names, two figures": ("Expected F1 and recall: 0.80 and 0.75", 0.80),
    "another sentence": ("F1 is the metric. Precision was 0.93.", None),
    "another metric": ("F1 matters less than accuracy, which is 0.95.", None),
    # bounds and denials
    "more than": ("Expected F1 > 0.75", None),
    "at least": ("I expect an F1 of at least 0.75.", None),
    "below": ("F1 will be below 0.9.", None),
    "not to be expected": ("F1 was 0.97 in validation; do not expect that later.", None),
    "not expected, another is": (
        "We do not expect the F1 of 0.97 again.\n\nExpected F1: 0.80",
        0.80,
    ),
    "overstated": ("The validation F1 (0.81) overstates what we expect.", None),
    "too good": ("An F1 of 0.97 is too good to be true.", None),
    "struck out": ("Expected F1: ~~0.85~~ 0.80", 0.80),
    "in a comment": ("<!-- Expected F1: 0.95 -->\nExpected F1: 0.80", 0.80),
    # what decides
    "validation first": ("Validation F1 was 0.83. I expect F1 of 0.80 on new data.", 0.80),
    "declared at the end": ("We estimate F1 at 0.79 to begin with.\n\n**Expected F1:** 0.81", 0.81),
    "declared twice alike": ("Expected F1: 0.80\n\n- Expected F1: **0.80**", 0.80),
    "declared twice": ("Expected F1: 0.80\n\nExpected F1: 0.84", None),
    "expected twice": ("We expect F1 0.80.\n\nOur estimate of F1 is 0.75.", None),
    "declared, then hedged": ("Expected F1: 0.80\n\nWe expect F1 0.75 in bad months.", 0.80),
    "holdout against validation": ("Validation F1: 0.83\n\nHold-out F1: 0.80", 0.80),
    "two of the same": ("Fold 1 F1: 0.83\n\nFold 2 F1: 0.81", None),
    "in a heading": ("## Expected F1\n\n0.80, by cross-validation", 0.80),
    "under a heading": ("## Expected performance\n\n- F1: 0.80\n- Precision: 0.9", 0.80),
    "under a heading, validation": (
        "## Expected performance\n\nF1 in validation: 0.83\n\nF1: 0.80",
        0.80,
    ),
    "on the next line": ("Expected F1:\n0.80", 0.80),
    "in code": ("```\nExpected F1: 0.80\n```", 0.80),
    "code that computes it": ("```\nf1_score(y, p > 0.42)\n```", None),
    "output": ("```\nfold 5 F1 0.81\n```", 0.81),
    "numbered": ("1. Expected F1: 0.80", 0.80),
    "quoted": ("> Expected F1: `0.80`", 0.80),
    # tables
    "a table of metrics": ("| metric | value |\n|---|---|\n| precision | 0.9 |\n| F1 | 0.8 |", 0.8),
    "a table with a target": (
        "| metric | target | value |\n|---|---|---|\n| F1 | 0.90 | 0.80 |",
        0.80,
    ),
    "a table of times": (
        "| metric | validation | expected |\n|---|---|---|\n| F1 | 0.83 | 0.80 |\n"
        "| recall | 0.9 | 0.8 |",
        0.80,
    ),
    "a table of times, none expected": (
        "| metric | fold 1 | fold 2 |\n|---|---|---|\n| F1 | 0.83 | 0.80 |",
        None,
    ),
    "a table of splits": (
        "| split | F1 | macro F1 |\n|---|---|---|\n| training | 0.99 | 0.99 |\n"
        "| validation | 0.83 | 0.90 |\n| expected on the holdout | 0.80 | 0.88 |",
        0.80,
    ),
    "a table of models": (MODELS, None),
    "a table of models and a line": (MODELS + "\nExpected F1: 0.80", 0.80),
    "a table of classes": (
        "| class | precision | F1 |\n|---|---|---|\n| ham | 0.97 | 0.97 |\n"
        "| spam | 0.85 | 0.82 |\n| macro avg | 0.91 | 0.90 |",
        0.82,
    ),
    "a table without its bars": ("Fold | F1\n--- | ---\n1 | 0.81\n2 | 0.83", None),
    "a report of scikit-learn": (f"```{REPORT}```", 0.82),
    "a report of scikit-learn without a fence": (REPORT, 0.82),
    "a report with names": (REPORT.replace("  0  ", " ham ").replace("  1  ", " spam "), 0.82),
    "a report and a line": (f"{REPORT}\nExpected F1: 0.80", 0.80),
    "a report without the class": (REPORT.replace("  1  ", "  2  "), None),
}


@pytest.mark.parametrize("name", STYLES)
def test_expected_f1_in_many_styles(name: str) -> None:
    text, value = STYLES[name]
    assert expected_f1(text) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    "text",
    [
        "F1 " * 60_000,
        "expected f1/" * 20_000,
        "precision / recall / f1 / " * 9_000,
        "Expected F1 (" * 15_000,
        "expected f1: " + "9" * 190_000,
        "| f1 " * 40_000,
        "not expected f1 between 0.1 and " * 6_000,
        "~~" * 100_000,
        "precision recall f1-score support\n" * 5_000,
        "f1 " + "0.5, " * 40_000,
        "a \ud800 F1 0.8",
    ],
)
def test_no_document_takes_long(text: str) -> None:
    expected_f1(text)
