"""What the site of the documentation adds to its pages: mkdocs calls these functions (`hooks` in mkdocs.yml).

The navigation's part of the reference is the table of its pages; files that lie beside docs/ become pages; what a page
links to elsewhere in the repository is named, since a site that stands alone cannot lead there.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from rollbook.infra.reference.pages import PAGES, pictures

ROOT = Path(__file__).resolve().parents[2]
BESIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "README.md": "overview.md"}
"""Files of the repository's root, and the pages that they are on the site."""
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#\s]*)(?P<heading>#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The reference's navigation."""
    pages: list[object] = ["reference/README.md", *(f"reference/{page.file}" for page in PAGES)]
    for entry in config.nav or []:
        if isinstance(entry, dict) and "Reference" in entry:
            entry["Reference"] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files beside docs/."""
    for name, page in BESIDE.items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=_moved_in((ROOT / name).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that would leave the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def onto_site(link: re.Match[str]) -> str:
        path, heading = link["path"], link["heading"] or ""
        target = posixpath.normpath(posixpath.join(folder, path)) if path and ":" not in path else ""
        if not target.startswith("../"):
            return link[0]
        name = target.removeprefix("../")
        if name in BESIDE:
            return f"[{link['text']}]({posixpath.relpath(BESIDE[name], folder or '.')}{heading})"
        return f"{link['text']} (`{name}`)" if link["text"].strip("`") != name else link["text"]

    return _outside_of_code(markdown, onto_site)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Pictures of the tables become part of the page, where they follow its palette."""
    for name, picture in pictures().items():
        html = re.sub(rf'<img [^>]*images/{re.escape(name)}"[^>]*>', picture.strip(), html)
    return html


def _moved_in(text: str) -> str:
    """A file of the root as a page: what it links to below docs/ lies beside it now."""
    return _outside_of_code(
        text,
        lambda link: (
            f"[{link['text']}]({link['path'].removeprefix('docs/')}{link['heading'] or ''})"
            if link["path"].startswith("docs/") or ":" in link["path"] or not link["path"]
            else f"[{link['text']}](../{link['path']}{link['heading'] or ''})"
        ),
    )


def _outside_of_code(markdown: str, change: Callable[[re.Match[str]], str]) -> str:
    parts: list[str] = []
    at = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(change, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join((*parts, _LINK.sub(change, markdown[at:])))
