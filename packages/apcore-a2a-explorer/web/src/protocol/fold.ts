import { isProgressReport } from "./progress";
import type { Artifact, StreamEvent, Task } from "./types";

/**
 * Return the task after *event*. Do not use *task* afterwards: its artifacts are changed in place,
 * because they may get thousands of parts. A status message moves to the history when the next
 * status replaces it. A progress report does not replace the status message.
 */
export function fold(task: Task | null, event: StreamEvent): Task | null {
  if (event.kind === "task") return copyOf(event.task);
  if (event.kind === "message") return task;
  const current = task ?? newTask(event.taskId, event.contextId);
  if (event.kind === "artifact") {
    return { ...current, artifacts: withArtifact(current.artifacts, event.artifact, event.append) };
  }
  const message = current.status.message;
  if (isProgressReport(event)) return { ...current, status: { ...event.status, message } };
  const isRecorded = !message || current.history.some((earlierMessage) => earlierMessage.messageId === message.messageId);
  const history = isRecorded ? current.history : [...current.history, message];
  return { ...current, history, status: event.status };
}

const newTask = (id: string, contextId: string): Task => ({
  id,
  contextId,
  status: { state: "submitted" },
  artifacts: [],
  history: [],
});

/** A copy, so that later events do not change the event's task. */
function copyOf(task: Task): Task {
  const artifacts = task.artifacts.map((artifact) => ({ ...artifact, parts: [...artifact.parts] }));
  return { ...task, artifacts };
}

function withArtifact(artifacts: Artifact[], artifact: Artifact, append: boolean): Artifact[] {
  const index = artifacts.findIndex((candidate) => candidate.artifactId === artifact.artifactId);
  const existing = artifacts[index];
  if (!existing) return [...artifacts, { ...artifact, parts: [...artifact.parts] }];
  if (!append) return artifacts.with(index, { ...artifact, parts: [...artifact.parts] });
  for (const part of artifact.parts) existing.parts.push(part);
  return artifacts.with(index, { ...existing });
}
