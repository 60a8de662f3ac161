"""The site of the documentation: the checks of its pages, and the hook that adapts them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import check_site, docs_hook


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img srcset="a.png 1x, https://cdn.example/a.png 2x">',
        "<style>@import 'https://cdn.example/a.css'</style>",
        '<p style="background: url(https://cdn.example/a.png)">',
    ],
)
def test_a_page_that_contacts_another_host_is_reported(
    html: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "index.html").write_text(html, encoding="utf-8")

    assert check_site.main(tmp_path) == 1
    assert capsys.readouterr().out.startswith("index.html: ")


def test_local_files_and_links_are_not_reported(tmp_path: Path) -> None:
    page = '<a href="https://a.example">A</a><link rel="canonical" href="https://b.example">'
    (tmp_path / "index.html").write_text(f'{page}<script src="a.js"></script>', encoding="utf-8")
    (tmp_path / "a.js").write_text('const name = "http://www.w3.org/2000/svg"', encoding="utf-8")
    (tmp_path / "a.css").write_text("a { background: url(data:image/png;base64,)}")

    assert check_site.main(tmp_path) == 0


@pytest.mark.parametrize(("element", "code"), [('class="mermaid"', 1), ("", 0)])
def test_a_host_called_on_demand_is_reported_only_if_a_page_demands_it(
    element: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(f"<html><pre {element}>", encoding="utf-8")
    (tmp_path / "a.js").write_text('load("https://unpkg.com/mermaid.js")', encoding="utf-8")

    assert check_site.main(tmp_path) == code


def test_a_folder_without_pages_is_refused(tmp_path: Path) -> None:
    assert check_site.main(tmp_path) == 1


@pytest.mark.parametrize(
    ("markdown", "adapted"),
    [
        ("](../README.md)", f"]({docs_hook.REPOSITORY}README.md)"),
        ("](../tests/conftest.py#L1)", f"]({docs_hook.REPOSITORY}tests/conftest.py#L1)"),
        ("](internal/requirements.md)", f"]({docs_hook.REPOSITORY}docs/internal/requirements.md)"),
        ("](client.md#errors)", "](client.md#errors)"),
        ("](../missing.py)", "](../missing.py)"),
        ("](https://example.com/a)", "](https://example.com/a)"),
        ('```python title="a.py" test="no"', '```python title="a.py"'),
        ('```shell test="serve"', "```shell"),
    ],
)
def test_pages_are_adapted_to_the_site(markdown: str, adapted: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="security.md"))

    assert docs_hook.on_page_markdown(markdown, page=page, config=None, files=None) == adapted
