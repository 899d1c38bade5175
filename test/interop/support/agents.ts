import type { Agent, AgentKind, Answers } from './agent.ts'
import { v1 } from './v1-agent.ts'
import { v2Auto, v2Legacy, v2Pinned } from './v2-agent.ts'

export const agents: readonly AgentKind[] = [v1, v2Legacy, v2Auto, v2Pinned]

export const oneOfEachEra: readonly AgentKind[] = [v1, v2Pinned]

const open: Agent[] = []

/** Connects a client; `closeAgents` closes it. */
export async function connect(kind: AgentKind, url: string, answers?: Answers): Promise<Agent> {
  const agent = await kind.connect(url, answers)
  open.push(agent)
  return agent
}

export async function closeAgents(): Promise<void> {
  await Promise.all(open.splice(0).map((agent) => agent.close()))
}
