"""What the shop sells and to whom. Words are few, so that a tiny policy can know each of them as one token."""

from __future__ import annotations

_ITEMS = """
kettle lamp chair radio clock mirror blanket basket jacket helmet printer camera
candle hammer pillow wallet guitar puzzle carpet ladder bottle brush drill globe
"""
_CUSTOMERS = "Ann Ben Cleo Dora Eric Fay Glen Hugo Iris Jack Kate Leo Mona Nils Olga Paul"
ITEMS, CUSTOMERS = tuple(_ITEMS.split()), tuple(_CUSTOMERS.split())
ORDER_IDS = tuple(letter + digit for letter in "ABCDEFGHKMPR" for digit in "23456789")
ORDER_ID = r"\b[A-Z][0-9]\b"
LONGEST_AGO = 90
