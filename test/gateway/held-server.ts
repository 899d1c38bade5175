import type { ServerResponse } from 'node:http'
import { RawServer, sendJson } from '../e2e/support/raw-server.ts'
import { until } from '../support/until.ts'

/** A server with its name in each reply. `name` answers at once; `hold` answers when the test says so. */
export async function heldServer(name: string) {
  const held: { id: unknown; response: ServerResponse }[] = []
  const reply = (id: unknown, response: ServerResponse) =>
    sendJson(
      response,
      JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: name }] } }),
    )
  const server = await RawServer.start(
    ({ message: { id, method, params } }, response) => {
      if (method !== 'tools/call') return false
      if ((params as { name: string }).name === 'hold') held.push({ id, response })
      else reply(id, response)
      return true
    },
    ['name', 'hold'],
  )
  return {
    url: server.url,
    server,
    /** Waits until the server holds `count` calls. */
    holds: (count: number) => until(`${name} holds ${count} calls`, () => held.length === count),
    answer() {
      for (const { id, response } of held.splice(0)) reply(id, response)
    },
  }
}
