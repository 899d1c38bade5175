import type { GatewayError } from '../../src/mesh/errors.ts'
import type { Catalog } from '../../src/registry/catalog.ts'
import { Discovery } from '../../src/registry/discovery.ts'
import { Links } from '../../src/registry/links.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { noFaults } from '../support/no-faults.ts'
import { type Script, ScriptedUpstream } from '../support/scripted-upstream.ts'

export const TIMEOUT_MS = 10_000
export const REFRESH_MS = 300_000
export const PROBE_MS = 15_000

/** A server with one tool, which answers everything. */
export const oneTool: Script = (method) => {
  const lists = { tools: [{ name: 'a' }], prompts: [], resources: [], resourceTemplates: [] }
  return { result: method.endsWith('/list') ? lists : {} }
}

/** A server that is being discovered, and what was told of it. */
export function discovered(script: Script = oneTool, upstream = new ScriptedUpstream(script)) {
  const clock = new ManualClock()
  const links = new Links({ replicas: [upstream], clock, timeoutMs: TIMEOUT_MS })
  const told: ('up' | GatewayError['reason'])[] = []
  const catalogs: Catalog[] = []
  const discovery = new Discovery({
    server: 's',
    links,
    hello: {},
    clock,
    faults: noFaults.upstream,
    timeoutMs: TIMEOUT_MS,
    refreshMs: REFRESH_MS,
    probeMs: PROBE_MS,
    maxList: 1024 ** 2,
    onUp: (catalog) => {
      told.push('up')
      catalogs.push(catalog)
    },
    onStale: () => undefined,
    onDown: ({ reason }) => told.push(reason),
  })
  return {
    clock,
    links,
    upstream,
    discovery,
    told,
    catalogs,
    /** All that the server was asked, over all conversations, since the last look. */
    asked(): string[] {
      const asked = upstream.links.flatMap((link) => link.asked.splice(0))
      return asked.sort()
    },
    /** Begins, and waits for the first round. */
    async start(): Promise<void> {
      discovery.run()
      await clock.advance(0)
    },
  }
}

/** What one round asks of a server that offers everything. */
export const allLists = ['prompts/list', 'resources/list', 'resources/templates/list', 'tools/list']
