"""A CrewAI flow that asks a question; run `apcore-a2a serve flow.py:flow`."""

from crewai.flow import Flow, start


class Trip(Flow):
    """Plans a trip."""

    @start()
    def plan(self) -> str:
        """Ask for the destination."""
        return f"A weekend in {self.ask('Where to?')}"


flow = Trip()
