import { headersOf, metaOf } from '../../../test/e2e/support/modern-client.ts'
import { until } from '../../../test/support/until.ts'
import { script, type ScriptedCall, type Task } from './script.ts'
import type { Orders } from './server.ts'
import type { Stage } from './stage.ts'

/** Plays the script once. Resolves when everything has been counted. `pass`: a word that is unique to this pass. */
export async function play(stage: Stage, pass: string): Promise<void> {
  await Promise.all(script.map((task, index) => playTask(stage, task, `${pass}-${index}`)))
  await stage.quiet()
}

async function playTask(stage: Stage, { named, calls }: Task, name: string): Promise<void> {
  const headers = {
    header: { 'x-breakwater-intent': name },
    baggage: { baggage: `breakwater.intent=${name}` },
    nowhere: {},
  }[named]
  for (const [index, call] of calls.entries()) await make(stage, call, `${name}-${index}`, headers)
}

/** Makes a call like an agent of the sessionless protocol: only named tasks exist. */
async function make(
  { mcp, server }: Stage,
  { tool, tries }: ScriptedCall,
  call: string,
  headers: Readonly<Record<string, string>>,
): Promise<void> {
  const orders: Orders = { call, tries }
  // Without `item`, the gateway does not let a call of `price` pass.
  const args = tries.length === 0 ? orders : { ...orders, item: 'this' }
  const params = { name: tool, arguments: args, _meta: metaOf() }
  const body = { jsonrpc: '2.0', id: call, method: 'tools/call', params }
  const abort = new AbortController()
  const over = fetch(mcp, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headersOf(body),
      ...headers,
    },
    signal: abort.signal,
  }).then((response) => response.text())
  if (tries[0] !== 'cancelled') return void (await over)
  await until('the call to be cancelled has come', () => server.has(call))
  abort.abort()
  await over.catch(() => undefined)
}
