"""A CrewAI crew; set OPENAI_API_KEY and run `apcore-a2a serve agent.py:crew`."""

from crewai import Agent, Crew, Task

writer = Agent(role="Writer", goal="Write short texts", backstory="You write for children.")
task = Task(description="Write about {topic}.", expected_output="Two sentences.", agent=writer)
crew = Crew(name="writers", agents=[writer], tasks=[task])
