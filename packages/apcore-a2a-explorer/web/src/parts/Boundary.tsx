import { Component, type ComponentChildren } from "preact";
import { describe } from "../protocol/errors";

interface Props {
  children: ComponentChildren;
  /** What is shown instead; unless given, that this can't be. */
  instead?: (error: unknown) => ComponentChildren;
}

/** Agents may say what no view was made for; only that part of the page is lost then. */
export class Boundary extends Component<Props, { error?: unknown }> {
  static getDerivedStateFromError(error: unknown) {
    return { error: error ?? "unknown" };
  }

  render({ children, instead }: Props, { error }: { error?: unknown }) {
    if (error === undefined) return children;
    return instead?.(error) ?? <Unshown error={error} />;
  }
}

const Unshown = ({ error }: { error: unknown }) => (
  <p class="failure" role="alert">
    <strong>This can't be shown.</strong> <span class="breakable">{describe(error)}</span>
  </p>
);
