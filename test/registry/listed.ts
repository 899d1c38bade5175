import { gatewayError } from '../../src/mesh/errors.ts'
import type { ListKind } from '../../src/protocol/lists.ts'
import { listSlices, pageOf } from '../../src/registry/listing.ts'
import { Names } from '../../src/registry/names.ts'
import type { Server } from '../../src/registry/server.ts'
import type { Json } from '../support/memory-pipe.ts'
import { plainTool, ScriptedUpstream } from '../support/scripted-upstream.ts'
import { testServer } from './test-server.ts'

const names = new Names('__')

export interface Page {
  readonly tools?: readonly Json[]
  readonly nextCursor?: string
  readonly _meta?: Json
}

/** Returns a page of a list over all servers, as the JSON text of its result. */
export function listPage(...asked: Parameters<typeof listSlices>): string | undefined {
  const [kind, , servers, names] = asked
  const slices = listSlices(...asked)
  return slices && pageOf(kind, slices, servers, names)
}

/** Servers with these lists; `undefined` means an unreachable server. */
export async function servers(offers: Readonly<Record<string, Json | undefined>>, settings: Json = {}) {
  const found = new Map<string, Server>()
  for (const [name, lists] of Object.entries(offers)) {
    const empty = { tools: [], prompts: [], resources: [], resourceTemplates: [] }
    const upstream = new ScriptedUpstream(() => ({ result: { ...empty, ...lists } }))
    if (lists === undefined) upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
    const { server, start } = testServer(settings, [upstream], { name })
    await start()
    found.set(name, server)
  }
  const read = (cursor?: string, kind: ListKind = 'tools') => listPage(kind, cursor, found, names)
  const page = (cursor?: string) => JSON.parse(read(cursor) ?? 'null') as Page | null
  return { found, read, page }
}

/** Lists with these tools. */
export const tools = (...all: string[]): Json => ({ tools: all.map(plainTool) })

/** Lists with so many tools. */
export const many = (count: number): Json => tools(...Array.from({ length: count }, (_, n) => `t${n}`))
