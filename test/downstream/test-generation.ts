import { config as schema } from '../../src/config/schema/schema.ts'
import type { McpRequest } from '../../src/downstream/endpoint.ts'
import { type Message, newRecord } from '../../src/mesh/call.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { compileMesh } from '../../src/mesh/compile.ts'
import type { GatewayGeneration } from '../../src/registry/generation.ts'
import { Names } from '../../src/registry/names.ts'
import { readdress } from '../../src/registry/references.ts'
import type { Server } from '../../src/registry/server.ts'
import { testServer } from '../registry/test-server.ts'
import { TestCaller, TestChannel } from '../support/caller.ts'
import { testPolicyContext } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'
import type { Json } from '../support/memory-pipe.ts'
import type { ScriptedUpstream } from '../support/scripted-upstream.ts'

/** A generation of servers played by the test, without policies; all of them have been discovered. */
export async function testGeneration(
  upstreams: Readonly<Record<string, ScriptedUpstream>>,
  settings: Readonly<Record<string, Json>> = {},
): Promise<{ generation: GatewayGeneration; clock: ManualClock }> {
  const clock = new ManualClock()
  const servers = new Map<string, Server>()
  for (const [name, upstream] of Object.entries(upstreams)) {
    const { server } = testServer(settings[name], [upstream], { name, clock })
    servers.set(name, server)
    server.start()
  }
  await clock.advance(0)
  return { generation: generationOf(servers, clock), clock }
}

/** A generation of these servers, without policies; calls `close` when its last call has ended. */
export function generationOf(
  servers: ReadonlyMap<string, Server>,
  clock: ManualClock,
  close: () => void = () => undefined,
): GatewayGeneration {
  const settings = { defaults: {}, overrides: [] }
  const context = testPolicyContext(clock)
  const mesh = compileMesh({
    policies: {},
    config: settings,
    context,
    servers,
    readdress: (call, name, tool) => readdress(call, servers.get(name), tool),
    observe: (next) => next,
    attempt: (next) => next,
    faults: { client: (next) => next, upstream: (next) => next },
    transport: (call) => servers.get(call.server)!.send(call),
  })
  const names = new Names('__')
  return {
    config: schema.parse({}),
    hash: '',
    servers,
    names,
    mesh,
    policies: settings,
    state: context.state,
    serviceFor: ({ server, method, tool }) => mesh.serviceFor(server, method, tool),
    clientFaults: () => undefined,
    patienceMs: 1_000,
    follow: () => undefined,
    close,
  }
}

/** Returns an agent's request, with its channel and the servers the channel was made for. */
export function mcpRequest(method: string, params: Json = {}, more: Partial<McpRequest> = {}) {
  const value = { jsonrpc: '2.0', id: 7, method, params }
  const message: Message = { text: JSON.stringify(value), value }
  const channel = new TestChannel()
  const caller = new TestCaller()
  const record = newRecord(0)
  const signal = new Cancellation()
  const request: McpRequest = {
    id: 7,
    message,
    headers: {},
    caller,
    tenancy: { tenant: 'test', countsAs: 'test' },
    channelFor: () => channel,
    signal,
    record,
    ...more,
  }
  return { request, channel, caller, record }
}

export function read({ text }: { readonly text: string }) {
  return JSON.parse(text) as {
    id: unknown
    result?: Json
    error?: { code: number; message: string; data?: Json }
  }
}
