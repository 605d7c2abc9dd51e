"""The shop's server, with its data in SQLite: `python -m tracewheel_web.shop.site PORT`.

Two hooks are for the environment alone, which knows the secret in TRACEWHEEL_HOOK: `POST /_reset` takes the state to begin
with, `GET /_state` tells it:
`{"catalogue": number, "cart": {product: quantity}, "orders": {number: {items, address, status}}}`.
"""

from __future__ import annotations

import hmac
import html
import json
import os
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tracewheel_web.shop.stock import CATEGORIES, COUNTRIES, products

FIELDS = ("name", "street", "postcode", "city", "country")
FIRST_ORDER, MOST = 1001, 5
SCHEMA = """
CREATE TABLE products (id TEXT PRIMARY KEY, name TEXT, category TEXT, price INTEGER);
CREATE TABLE cart (product TEXT PRIMARY KEY, quantity INTEGER);
CREATE TABLE orders (number INTEGER PRIMARY KEY, address TEXT, status TEXT, items TEXT);
"""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head><body>
<nav><a href="/">Shop</a> <a href="/cart">Cart ({count})</a> <a href="/orders">Orders</a></nav>
<h1>{title}</h1>{body}</body></html>"""


class Shop:
    """The data, and the pages that show and change it."""

    def __init__(self) -> None:
        self.reset({"catalogue": 0, "cart": {}, "orders": {}})

    def reset(self, state: dict[str, Any]) -> None:
        """Begin with this state."""
        self._catalogue = state["catalogue"]
        self._data = sqlite3.connect(":memory:", check_same_thread=False)
        self._data.executescript(SCHEMA)
        self._data.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", products(self._catalogue))
        self._data.executemany("INSERT INTO cart VALUES (?, ?)", state["cart"].items())
        for number, order in state["orders"].items():
            self._add_order(int(number), order["address"], order["items"], order["status"])

    def state(self) -> dict[str, Any]:
        """The state as it is."""
        orders = {
            str(number): {"items": json.loads(items), "address": json.loads(address), "status": status}
            for number, address, status, items in self._data.execute("SELECT * FROM orders ORDER BY number")
        }
        return {"catalogue": self._catalogue, "cart": dict(self._data.execute("SELECT * FROM cart")), "orders": orders}

    def shown(self, path: str, given: dict[str, str]) -> str | None:
        """A page; None where there is none."""
        name, _, rest = path.strip("/").partition("/")
        if name == "" and not rest:
            return self._page("Shop", self._search(given))
        if name == "product":
            found = self._data.execute("SELECT * FROM products WHERE id = ?", (rest,)).fetchone()
            return found and self._page(found[1], self._product(*found))
        bodies = {"cart": ("Cart", self._cart), "checkout": ("Checkout", self._checkout), "orders": ("Orders", self._orders)}
        return self._page(bodies[name][0], bodies[name][1]()) if name in bodies and not rest else None

    def changed(self, path: str, given: dict[str, str]) -> str | None:
        """Carry out a form. Returns the page to go to; None where the form is none of ours, or not filled in."""
        if (
            path == "/cart/set"
            and self._data.execute("SELECT 1 FROM products WHERE id = ?", (given.get("product"),)).fetchone()
        ):
            quantity = int(given["quantity"]) if given.get("quantity", "").isdecimal() else 0
            self._data.execute("DELETE FROM cart WHERE product = ?", (given["product"],))
            if 0 < quantity <= MOST:
                self._data.execute("INSERT INTO cart VALUES (?, ?)", (given["product"], quantity))
            return "/cart"
        cart = dict(self._data.execute("SELECT * FROM cart"))
        if path == "/checkout" and cart and all(given.get(field, "").strip() for field in FIELDS):
            last = self._data.execute("SELECT MAX(number) FROM orders").fetchone()[0]
            self._add_order((last or FIRST_ORDER - 1) + 1, {field: given[field].strip() for field in FIELDS}, cart, "open")
            self._data.execute("DELETE FROM cart")
            return "/orders"
        if path == "/orders/cancel":
            self._data.execute("UPDATE orders SET status = 'cancelled' WHERE number = ?", (given.get("number"),))
            return "/orders"
        return None

    def _add_order(self, number: int, address: dict[str, str], items: dict[str, int], status: str) -> None:
        row = (number, json.dumps(address), status, json.dumps(items))
        self._data.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", row)

    def _page(self, title: str, body: str) -> str:
        count = self._data.execute("SELECT COALESCE(SUM(quantity), 0) FROM cart").fetchone()[0]
        return PAGE.format(title=html.escape(title), count=count, body=body)

    def _search(self, given: dict[str, str]) -> str:
        words, category, order = given.get("q", ""), given.get("category", ""), given.get("sort", "")
        rows = self._data.execute(
            "SELECT id, name, category, price FROM products WHERE name LIKE ? AND (? = '' OR category = ?) ORDER BY "
            + {"price": "price", "-price": "-price"}.get(order, "rowid"),
            (f"%{words}%", category, category),
        )
        found = "".join(
            f'<tr><td><a href="/product/{id}">{name}</a></td><td>{group}</td><td>{price} euros</td></tr>'
            for id, name, group, price in rows
        )
        choices = _options("category", {"": "all", **{name: name for name in CATEGORIES}}, category)
        sorts = _options("sort", {"": "as they come", "price": "cheapest first", "-price": "dearest first"}, order)
        return (
            f'<form action="/"><label>Search <input name="q" value="{html.escape(words)}"></label> '
            f"<label>Category {choices}</label> <label>Order {sorts}</label> <button>Find</button></form><table>{found}</table>"
        )

    def _product(self, id: str, name: str, category: str, price: int) -> str:
        numbers = _options("quantity", {str(number): str(number) for number in range(1, MOST + 1)}, "1")
        return (
            f'<p>{category}, {price} euros</p><form method="post" action="/cart/set">{_hidden("product", id)}'
            f"<label>Quantity {numbers}</label> <button>Put into the cart</button></form>"
        )

    def _cart(self) -> str:
        rows = self._data.execute(
            "SELECT id, name, quantity, price FROM cart JOIN products ON id = product ORDER BY name"
        ).fetchall()
        lines = "".join(
            f'<tr><td><a href="/product/{id}">{name}</a></td><td>{quantity} at {price} euros</td><td><form method="post" '
            f'action="/cart/set">{_hidden("product", id)}{_hidden("quantity", "0")}'
            f"<button>Remove {name}</button></form></td></tr>"
            for id, name, quantity, price in rows
        )
        return f'<table>{lines}</table><a href="/checkout">Check out</a>' if rows else "<p>The cart is empty.</p>"

    def _checkout(self) -> str:
        fields = "".join(f'<label>{field.title()} <input name="{field}"></label><br>' for field in FIELDS[:-1])
        countries = _options("country", {name: name for name in COUNTRIES}, "")
        fields += f"<label>Country {countries}</label><br><button>Order</button>"
        return f'<form method="post" action="/checkout">{fields}</form>'

    def _orders(self) -> str:
        names = dict(self._data.execute("SELECT id, name FROM products"))
        lines = ""
        for number, address, status, items in self._data.execute("SELECT * FROM orders ORDER BY number"):
            what = ", ".join(f"{quantity} {names.get(product, product)}" for product, quantity in json.loads(items).items())
            where = html.escape(", ".join(json.loads(address).values()))
            button = f"{_hidden('number', number)}<button>Cancel order {number}</button>" if status == "open" else ""
            cells = (number, what, where, status, f'<form method="post" action="/orders/cancel">{button}</form>')
            lines += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        return f"<table>{lines}</table>" if lines else "<p>There are no orders.</p>"


class Handler(BaseHTTPRequestHandler):
    """Pages, forms and the two hooks."""

    protocol_version = "HTTP/1.1"
    shop, lock = Shop(), threading.Lock()
    secret = os.environ.get("TRACEWHEEL_HOOK", "")

    def do_GET(self) -> None:
        with self.lock:
            self._get()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("utf-8", "replace")
        with self.lock:
            self._post(body)

    def _get(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/_state":
            self._send(json.dumps(self.shop.state()) if self._is_ours() else None, "application/json")
        else:
            self._send(self.shop.shown(address.path, {name: values[0] for name, values in parse_qs(address.query).items()}))

    def _post(self, body: str) -> None:
        if self.path == "/_reset":
            if ours := self._is_ours():
                self.shop.reset(json.loads(body))
            self._send("{}" if ours else None, "application/json")
            return
        target = self.shop.changed(self.path, {name: values[0] for name, values in parse_qs(body).items()})
        if target is None:
            self._send("<p>That form is not complete.</p>", status=400)
        else:
            self._send("", status=303, more={"Location": target})

    def _is_ours(self) -> bool:
        return bool(self.secret) and hmac.compare_digest(self.headers.get("X-Tracewheel-Hook", ""), self.secret)

    def _send(self, text: str | None, type: str = "text/html", status: int = 200, more: dict[str, str] | None = None) -> None:
        content = ("not found" if text is None else text).encode()
        self.send_response(404 if text is None else status)
        for name, value in {
            "Content-Type": f"{type}; charset=utf-8",
            "Content-Length": str(len(content)),
            **(more or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _hidden(name: str, value: object) -> str:
    return f'<input type="hidden" name="{name}" value="{value}">'


def _options(name: str, choices: dict[str, str], chosen: str) -> str:
    options = "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{label}</option>' for value, label in choices.items()
    )
    return f'<select name="{name}">{options}</select>'


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
