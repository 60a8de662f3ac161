import { Component, type ComponentChildren } from "preact";
import { describe } from "../protocol/errors";

interface Props {
  children: ComponentChildren;
  /** Content to show after an error; by default, a message. */
  instead?: (error: unknown) => ComponentChildren;
}

/** Catches rendering errors of an agent's data, so that only this part of the page is lost. */
export class Boundary extends Component<Props, { error?: unknown }> {
  static getDerivedStateFromError(error: unknown) {
    return { error: error ?? "unknown" };
  }

  render({ children, instead }: Props, { error }: { error?: unknown }) {
    if (error === undefined) return children;
    return instead?.(error) ?? <RenderError error={error} />;
  }
}

const RenderError = ({ error }: { error: unknown }) => (
  <p class="failure" role="alert">
    <strong>This content can't be displayed.</strong> <span class="breakable">{describe(error)}</span>
  </p>
);
