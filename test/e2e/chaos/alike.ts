import type { Gateway } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { RawClient } from '../support/raw-client.ts'

/** A real failure, and a failure made by faults. */
export const kinds = ['real', 'fake'] as const

export const eras = ['legacy', 'modern'] as const

/** A reply as an agent sees it, without the differences between servers called `real_…` and `fake_…`. */
export interface Alike {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
}

/** An agent that calls tools, always under the same id. A broken connection counts as a reply. */
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

/** Returns the gateway's count of attempts at a tool, by outcome. */
export const attemptsAt = (gateway: Gateway, server: string, tool: string) =>
  gateway.sums('breakwater_upstream_attempts_total', 'outcome', `server="${server}",tool="${tool}"`)

export const fatesOf = (gateway: Gateway, fault: string) =>
  gateway.sums('breakwater_fault_outcomes_total', 'fate', `fault="${fault}"`)
