import type { Catalog } from '../../src/registry/catalog.ts'
import { Discovery } from '../../src/registry/discovery.ts'
import { UpstreamSessions } from '../../src/upstreams/sessions.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { noFaults } from '../support/no-faults.ts'
import { plainTool, type Script, ScriptedUpstream } from '../support/scripted-upstream.ts'

export const TIMEOUT_MS = 10_000
export const REFRESH_MS = 300_000
export const PROBE_MS = 15_000

/** A server with one tool, which answers everything. */
export const oneTool: Script = (method) => {
  const lists = { tools: [plainTool('a')], prompts: [], resources: [], resourceTemplates: [] }
  return { result: method.endsWith('/list') ? lists : {} }
}

/** A server under discovery, and the events about the server. */
export function discovered(
  script: Script = oneTool,
  upstream = new ScriptedUpstream(script),
  faults = noFaults.upstream,
  heldBy: () => readonly string[] = () => [],
) {
  const clock = new ManualClock()
  const upstreamSessions = new UpstreamSessions({ replicas: [upstream], clock, timeoutMs: TIMEOUT_MS })
  const told: string[] = []
  const messages: string[] = []
  const catalogs: Catalog[] = []
  const discovery = new Discovery({
    server: 's',
    upstreamSessions,
    conceal: (text) => text,
    initializeParams: {},
    clock,
    faults,
    heldBy,
    timeoutMs: TIMEOUT_MS,
    refreshMs: REFRESH_MS,
    probeMs: PROBE_MS,
    pingMs: PROBE_MS,
    maxList: 1024 ** 2,
    onUp: (catalog) => {
      told.push('up')
      catalogs.push(catalog)
    },
    onStale: () => undefined,
    onReverted: () => told.push('reverted'),
    onDown({ reason, message }) {
      told.push(reason)
      messages.push(message)
    },
  })
  return {
    clock,
    upstreamSessions,
    upstream,
    discovery,
    told,
    /** Reasons of each outage. */
    messages,
    catalogs,
    /** Returns all methods asked, over all conversations, since the last look. */
    asked(): string[] {
      const asked = upstream.upstreamSessions.flatMap((upstreamSession) => upstreamSession.asked.splice(0))
      return asked.sort()
    },
    /** Starts discovery and waits for the first round. */
    async start(): Promise<void> {
      discovery.run()
      await clock.advance(0)
    },
  }
}

/** The requests of one round to a server with every capability. */
export const allLists = ['prompts/list', 'resources/list', 'resources/templates/list', 'tools/list']
