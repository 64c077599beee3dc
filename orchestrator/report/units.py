"""Numbers as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`4.2s`, `58s`, `12m 05s`, `3h 07m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def count(number: int) -> str:
    """`950`, `12.3k`, `4.56M`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1e6:.2f}M"


def cost(dollars: float | None) -> str:
    """`$1.23`, `$0.0042`; `-` where no price is known."""
    if dollars is None:
        return "-"
    return f"${dollars:.2f}" if dollars >= 1 or dollars == 0 else f"${dollars:.4f}"


def score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
