"""What every page has to bear: a policy that allows nothing inline, and users who cannot see."""

from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Page

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class StrictPolicy:
    """Middleware: a Content-Security-Policy that is as strict as one can be."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response


AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def serious_findings(page: Page) -> list[str]:
    """What axe finds serious or critical on a page. It is run by the debugger, which no policy holds back."""
    page.evaluate(AXE + "; undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
