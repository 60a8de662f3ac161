import type { Artifact, StreamEvent, Task } from "./types";

/**
 * *task* after *event*, as a new object; only the parts of an artifact are added in place,
 * for there may be thousands. A status message becomes history when the next status replaces it.
 */
export function fold(task: Task | null, event: StreamEvent): Task | null {
  if (event.kind === "task") return copyOf(event.task);
  if (event.kind === "message") return task;
  const known = task ?? begun(event.taskId, event.contextId);
  if (event.kind === "artifact") {
    return { ...known, artifacts: folded(known.artifacts, event.artifact, event.append) };
  }
  const said = known.status.message;
  const told = !said || known.history.some((each) => each.messageId === said.messageId);
  const history = told ? known.history : [...known.history, said];
  return { ...known, history, status: event.status };
}

const begun = (id: string, contextId: string): Task => ({
  id,
  contextId,
  status: { state: "submitted" },
  artifacts: [],
  history: [],
});

/** The event stays as it came. */
function copyOf(task: Task): Task {
  const artifacts = task.artifacts.map((each) => ({ ...each, parts: [...each.parts] }));
  return { ...task, artifacts };
}

function folded(artifacts: Artifact[], artifact: Artifact, append: boolean): Artifact[] {
  const index = artifacts.findIndex((each) => each.artifactId === artifact.artifactId);
  const known = artifacts[index];
  if (!known) return [...artifacts, { ...artifact, parts: [...artifact.parts] }];
  if (!append) return artifacts.with(index, { ...artifact, parts: [...artifact.parts] });
  for (const part of artifact.parts) known.parts.push(part);
  return artifacts.with(index, { ...known });
}
