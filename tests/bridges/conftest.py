"""Ignores the tests of frameworks that are not installed; `tools/frameworks` runs all of them."""

from importlib.util import find_spec

PACKAGES = {
    "test_agno.py": "agno",
    "test_crewai.py": "crewai",
    "test_crewai_flows.py": "crewai",
    "test_google_adk.py": "google.adk",
    "test_langchain.py": "langchain_core",
    "test_langgraph.py": "langgraph",
    "test_openai_agents.py": "agents",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_strands.py": "strands",
}
"""The package that the tests of a file need."""


def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


collect_ignore = [file for file, package in PACKAGES.items() if not is_installed(package)]
