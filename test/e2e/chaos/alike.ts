import type { Gateway } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'

/** A server that really fails, and one of which faults make it seem so. */
export const kinds = ['real', 'fake'] as const

export const eras = ['legacy', 'modern'] as const

/** What an agent sees of a reply, without what may differ between servers that are called `real_…` and `fake_…`. */
export interface Alike {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

/** An agent that calls tools, each time under the same id. A connection that breaks is something to see, too. */
export async function callerAt(
  era: (typeof eras)[number],
  url: string,
): Promise<(tool: string) => Promise<Alike>> {
  const client = era === 'legacy' ? await RawClient.open(url) : new ModernClient(url)
  return async (tool) => {
    const meta = client instanceof ModernClient ? { _meta: client.meta } : {}
    const params = { name: tool, arguments: {}, ...meta }
    try {
      const request = { jsonrpc: '2.0', id: 'the-call', method: 'tools/call', params }
      const { status, headers, text } = await client.post(request)
      const { date: _, 'keep-alive': __, ...others } = Object.fromEntries(headers)
      return { status, headers: others, text: text.replaceAll(/\b(real|fake)_\w+/g, 'SERVER') }
    } catch (error) {
      const { cause } = error as { cause?: { code?: string } }
      return { status: 0, headers: {}, text: `the connection broke: ${cause?.code}` }
    }
  }
}

/** The attempts at a tool of a server by their outcome, as the gateway has counted them. */
export const attemptsAt = (gateway: Gateway, server: string, tool: string) =>
  gateway.sums('breakwater_upstream_attempts_total', 'outcome', `server="${server}",tool="${tool}"`)

/** The account of the injections of a fault. */
export const fatesOf = (gateway: Gateway, fault: string) =>
  gateway.sums('breakwater_fault_outcomes_total', 'fate', `fault="${fault}"`)
