"""Puts sections and data into one HTML file that needs nothing else.

A policy in the page forbids it to fetch anything; only links lead out.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(title: str, subtitle: str, parts: Sequence[str], data: Mapping[str, Any], links: Mapping[str, str]) -> str:
    """Returns the page; `links` are those of the navigation: address and text."""
    navigation = "".join(f'<li><a href="{escape(address)}">{escape(text)}</a></li>' for address, text in links.items())
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header><h1>{escape(title)}</h1><p class="quiet">{escape(subtitle)}</p></header>
<nav aria-label="Sections"><ul>{navigation}</ul></nav>
<main id="main">
{chr(10).join(parts)}
</main>
<footer>Written by Podium.</footer>
<script id="page-data" type="application/json">{as_script(data)}</script>
<script>
{script}</script>
</body>
</html>
"""


def as_script(data: Mapping[str, Any]) -> str:
    """Returns JSON that can stand inside a script element, whatever the texts in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
