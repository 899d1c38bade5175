import type { Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Pool } from './pool.ts'
import type { ToolSlots } from './tools.ts'

/** Bounds of what a rejected call is told to wait, in milliseconds. */
const LEAST_RETRY_MS = 50
const MOST_RETRY_MS = 30_000

/** Rejects a call for which there is no slot and no place to wait. */
export function full(pool: Pool, tool: ToolSlots): Outcome {
  const { queue, concurrent } = pool.settings
  const ofQueue = pool.placesOf(tool)
  const byTool = tool.waiting >= ofQueue && (isAtLimit(pool, tool) || pool.waiting < queue)
  const [waiting, places] = byTool ? [tool.waiting, ofQueue] : [pool.waiting, queue]
  const [running, slots] = byTool ? slotsOf(pool, tool) : [pool.running, concurrent]
  const whom = byTool ? nameOf(pool, tool) : pool.server
  const facts = `${running} of ${slots} running, ${waiting} of ${places} waiting`
  return reject(pool, tool, `bulkhead full for ${whom} (${facts})`)
}

/** Rejects a call that got no slot in time. */
export function waitedInVain(pool: Pool, tool: ToolSlots): Outcome {
  const waited = `waited ${pool.settings.maxWait} ms for a free slot`
  if (isAtLimit(pool, tool)) {
    const [running, limit] = slotsOf(pool, tool)
    return reject(pool, tool, `${waited} of ${nameOf(pool, tool)} (${running} of ${limit} running)`)
  }
  return reject(
    pool,
    tool,
    `${waited} of ${pool.server} (${pool.running} of ${pool.settings.concurrent} running)`,
  )
}

/** Whether it is the tool's own calls that keep it from a slot, and not those of others. */
function isAtLimit(pool: Pool, tool: ToolSlots): boolean {
  const { running } = tool.holds
  if (running < pool.limitOf(tool)) return false
  return tool.perTool !== undefined || pool.running < pool.settings.concurrent || running === pool.running
}

/** How many slots a tool holds, and how many it may; what others have taken since does not make it hold too many. */
function slotsOf(pool: Pool, tool: ToolSlots): [number, number] {
  const { running } = tool.holds
  return [running, Math.max(running, pool.limitOf(tool))]
}

function nameOf({ server }: Pool, { tool }: ToolSlots): string {
  return tool === undefined ? `requests to ${server} that are for no listed tool` : `${tool} of ${server}`
}

function reject(pool: Pool, tool: ToolSlots, message: string): Outcome {
  const error = gatewayError('bulkhead_full', message, { retryAfterMs: retryAfterMs(pool, tool) })
  return { kind: 'rejected', error, by: 'bulkhead' }
}

function retryAfterMs(pool: Pool, tool: ToolSlots): Millis {
  return Math.round(Math.min(MOST_RETRY_MS, Math.max(LEAST_RETRY_MS, pool.retryAfterMs(tool))))
}
