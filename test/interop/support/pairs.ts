import assert from 'node:assert/strict'
import type { Agent } from './agent.ts'
import type { Subject } from './subjects.ts'

/** A way to reach a server, and the names of its tools, prompts and resources there. */
export interface Route {
  readonly title: string
  /** The server's name in the gateway's URL; undefined for the URL of all servers. */
  server(subject: Subject): string | undefined
  name(subject: Subject, own: string): string
  uri(subject: Subject, own: string): string
}

export const ownRoute: Route = {
  title: '/mcp/{server}',
  server: ({ name }) => name,
  name: (_, own) => own,
  uri: (_, own) => own,
}

export const sharedRoute: Route = {
  title: '/mcp',
  server: () => undefined,
  name: ({ name }, own) => `${name}__${own}`,
  uri: ({ name }, own) => `breakwater://${name}/${own}`,
}

type Check = (agent: Agent, subject: Subject, route: Route) => Promise<void>

/** Features every client must be able to use at every server. */
export const features = {
  async 'tools/list'(agent, subject, route) {
    const wanted = route.name(subject, subject.tool.name)
    assert.ok((await agent.tools()).some(({ name }) => name === wanted))
  },
  async 'tools/call'(agent, subject, route) {
    const { name, args, expect } = subject.tool
    assert.match((await agent.call(route.name(subject, name), args)).text, expect)
  },
  async prompts(agent, subject, route) {
    const name = route.name(subject, subject.prompt.name)
    assert.ok((await agent.prompts()).includes(name))
    assert.match(await agent.prompt(name), subject.prompt.expect)
  },
  async resources(agent, subject, route) {
    const uri = route.uri(subject, subject.resource.name)
    assert.ok((await agent.resources()).includes(uri))
    assert.match(await agent.read(uri), subject.resource.expect)
  },
  async progress(agent, subject, route) {
    const { name, args, expect, steps } = subject.progress
    const seen: number[] = []
    const onprogress = (progress: number) => void seen.push(progress)
    assert.match((await agent.call(route.name(subject, name), args, { onprogress })).text, expect)
    assert.deepEqual(seen, steps)
  },
  async elicitation(agent, subject, route) {
    const { name, args, expect } = subject.elicitation
    assert.match((await agent.call(route.name(subject, name), args)).text, expect)
  },
} satisfies Record<string, Check>

export type Feature = keyof typeof features
