"""The README as a package index shows it, which has neither the files that it links to nor its pictures."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ELSEWHERE = "\nThe documents and pictures that are named here are in `docs/` of the source distribution.\n"


class IndexReadme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        """Turns links into the repository into their text, and leaves out pictures."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
        text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text + ELSEWHERE}
