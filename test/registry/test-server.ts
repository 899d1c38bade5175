import { server as schema } from '../../src/config/schema/server-schema.ts'
import type { ListKind } from '../../src/protocol/lists.ts'
import type { ServerState } from '../../src/registry/known-server.ts'
import { Names } from '../../src/registry/names.ts'
import { Server } from '../../src/registry/server.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { noFaults } from '../support/no-faults.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { oneTool } from './discovered.ts'

/** A registry entry over scripted endpoints, and the events about the entry. */
export function testServer(
  settings: Readonly<Record<string, unknown>> = {},
  replicas = [new ScriptedUpstream(oneTool)],
  { name = 's', clock = new ManualClock(), faults = noFaults.upstream } = {},
) {
  const states: ServerState[] = []
  const changes: (readonly ListKind[])[] = []
  const server = new Server({
    name,
    config: schema.parse({ url: 'http://127.0.0.1/mcp', ...settings }),
    connection: 'connection',
    replicas,
    names: new Names('__'),
    clock,
    faults,
    initializeParams: {},
    onChanged: (_, changed) => changes.push(changed),
    onStale: () => undefined,
    onState: ({ state }) => states.push(state),
  })
  return {
    server,
    clock,
    states,
    changes,
    upstream: replicas[0]!,
    /** Starts discovery and waits for its first round. */
    async start(): Promise<void> {
      server.start()
      await clock.advance(0)
      // Long lists are read in several turns; a silent server is not waited for.
      for (let turn = 0; turn < 100 && server.state === 'starting'; turn++)
        await new Promise((resolve) => setImmediate(resolve))
    },
  }
}
