"""The site's pages are the repository's files, each in its place, so that a link holds in both (`make docs`)."""

from __future__ import annotations

import re
from pathlib import PurePath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.tree import ROOT
from tests.tree import files as tracked

FOLDER = re.compile(r"(\]\([\w./-]+/)\)")  # a link to a folder, of which the site shows a list


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Every page under version control, and what else stands in docs/ and deploy/."""
    places = [PurePath(path.relative_to(ROOT)) for path in tracked()]
    places = [place for place in places if place.suffix == ".md" or place.parts[0] in ("docs", "deploy", "LICENSE")]
    found = Files([file for file in files if file.src_dir != config.docs_dir])  # the theme's
    for place in places:
        found.append(File(str(place), str(ROOT), config.site_dir, config.use_directory_urls))
    for folder in ("docs/adr", "deploy/grants", "deploy/systemd"):
        inside = [place for place in places if str(place.parent) == folder]
        lines = [f"- [{_title(place)}]({place.name})" for place in inside]
        found.append(File.generated(config, f"{folder}/index.md", content="\n".join([f"# {folder}", "", *lines])))
    config["nav"][-1] = {"Decisions": [str(file.src_uri) for file in found if file.src_uri.startswith("docs/adr/")]}
    return found


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return FOLDER.sub(r"\1index.md)", markdown)


def _title(place: PurePath) -> str:
    """A page's heading, a file's name."""
    return (ROOT / place).read_text().splitlines()[0].lstrip("# ") if place.suffix == ".md" else place.name
