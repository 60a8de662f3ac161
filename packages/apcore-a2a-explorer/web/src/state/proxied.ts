/** The agent's URL if a proxy forwards the requests of this page to the agent; else "". */
export const agentUrl = document.querySelector<HTMLMetaElement>('meta[name="agent-url"]')?.content ?? "";
