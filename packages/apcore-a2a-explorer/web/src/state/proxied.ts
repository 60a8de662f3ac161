/** The URL of the agent, if a proxy sends the requests of this page to it; else "". */
export const agentUrl = document.querySelector<HTMLMetaElement>('meta[name="agent-url"]')?.content ?? "";
