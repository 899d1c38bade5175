import { type Call, derive } from '../mesh/call.ts'
import { replaceAt } from '../protocol/json-span.ts'
import { paramsOf } from '../protocol/jsonrpc.ts'
import { forwardedWith } from '../upstreams/forwarded.ts'
import type { KnownServer } from './known-server.ts'

/** A tool call as another tool has to get it: under its name, with the headers that its server may have. */
export function readdress(call: Call, server: KnownServer | undefined, tool: string): Call | undefined {
  if (server === undefined || !server.allows(tool)) return undefined
  const { text, value } = call.message
  const message = {
    text: replaceAt(text, ['params', 'name'], tool),
    value: { ...value, params: { ...paramsOf(value), name: tool } },
  }
  const { config } = server
  const headers =
    config.type === 'stdio' ? undefined : forwardedWith(config.forwardHeaders, call.inbound, call.caller)
  return derive(call, { server: server.name, tool, message, headers, replica: undefined })
}
