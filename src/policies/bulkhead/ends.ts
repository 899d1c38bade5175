import type { Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Pool } from './pool.ts'
import type { ToolSlots } from './tools.ts'

/** Bounds of what a rejected call is told to wait, in milliseconds. */
const LEAST_RETRY_MS = 50
const MOST_RETRY_MS = 5_000

/** Rejects a call for which there is no slot and no place to wait. */
export function full(pool: Pool, tool: ToolSlots): Outcome {
  const { queue, concurrent } = pool.settings
  const crowded = tool.waiting >= tool.places
  const byTool = crowded && (tool.running >= tool.limit || pool.waiting < queue)
  const [waiting, places] = byTool ? [tool.waiting, tool.places] : [pool.waiting, queue]
  const [running, slots] = byTool ? [tool.running, tool.limit] : [pool.running, concurrent]
  const whom = byTool ? nameOf(pool, tool) : pool.server
  const facts = `${running} of ${slots} running, ${waiting} of ${places} waiting`
  return reject(pool, tool, `bulkhead full for ${whom} (${facts})`)
}

/** Rejects a call that got no slot in time. */
export function waitedInVain(pool: Pool, tool: ToolSlots): Outcome {
  const waited = `waited ${pool.settings.maxWait} ms for a free slot`
  if (tool.running >= tool.limit)
    return reject(pool, tool, `${waited} of ${nameOf(pool, tool)} (${tool.running} of ${tool.limit} running)`)
  return reject(
    pool,
    tool,
    `${waited} of ${pool.server} (${pool.running} of ${pool.settings.concurrent} running)`,
  )
}

function nameOf({ server }: Pool, { tool }: ToolSlots): string {
  return tool === undefined ? `requests to ${server} that are for no listed tool` : `${tool} of ${server}`
}

function reject(pool: Pool, tool: ToolSlots, message: string): Outcome {
  const error = gatewayError('bulkhead_full', message, { retryAfterMs: retryAfterMs(pool, tool) })
  return { kind: 'rejected', error, by: 'bulkhead' }
}

/** When all who wait will have been served, at the pace at which slots are given back. */
function retryAfterMs({ holdMs, waiting, settings }: Pool, tool: ToolSlots): Millis {
  const turns = Math.max((waiting + 1) / settings.concurrent, (tool.waiting + 1) / tool.limit)
  return Math.round(Math.min(MOST_RETRY_MS, Math.max(LEAST_RETRY_MS, holdMs * turns)))
}
