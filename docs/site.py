"""The site's pages are the repository's files, each in its place, so that a link holds in both (`make docs`)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FOLDER = re.compile(r"(\]\([\w./-]+/)\)")  # a link to a folder, of which the site shows a list


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Every page under version control, and what else stands in docs/ and deploy/."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs", "deploy", "LICENSE"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    places = sorted(PurePath(name) for name in names if (ROOT / name).is_file())
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
