import { type Cancellation, ignore } from '../mesh/cancel.ts'
import { type Millis, systemClock } from '../mesh/clock.ts'
import { implementation } from '../protocol/identity.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { LATEST_LEGACY } from '../protocol/versions.ts'
import { patiently } from '../load/timing.ts'
import type { Control } from './shared/control.ts'

/** How long all requests together may take, in milliseconds. */
const PATIENCE_MS: Millis = 10_000

/**
 * Opens a session at a data port, and looks for it at a control port. Resolves to a message when the ports belong to
 * different gateways; undefined when they belong together, or when the check is impossible. Never rejects.
 */
export function otherGateway(
  control: Control,
  data: string,
  stop: Cancellation,
): Promise<string | undefined> {
  const url = `${data.replace(/\/+$/, '')}/mcp`
  return patiently({ clock: systemClock, ms: PATIENCE_MS, stop }, async (signal) => {
    const id = await opened(url, signal).catch(() => undefined)
    if (id === undefined) return undefined
    try {
      const answered = await control({ method: 'GET', path: '/admin/sessions' })
      const { sessions } = answered.ok && isObject(answered.value) ? answered.value : {}
      // The gateway lists at most the 1,000 newest sessions.
      if (!Array.isArray(sessions)) return undefined
      const shown = `${id.slice(0, 8)}…`
      if (sessions.some((session) => isObject(session) && session.id === shown)) return undefined
      return `${data} is the data port of another gateway: nothing is called there`
    } finally {
      // If ending the session fails, the gateway ends it after its idle time.
      await left(url, id, signal).catch(ignore)
    }
  })
}

/** Opens a session. Resolves to its id. */
async function opened(url: string, signal: AbortSignal): Promise<string | undefined> {
  const params = { protocolVersion: LATEST_LEGACY, capabilities: {}, clientInfo: implementation }
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params }),
    redirect: 'error',
    signal,
  })
  await response.body?.cancel()
  return response.ok ? (response.headers.get('mcp-session-id') ?? undefined) : undefined
}

async function left(url: string, id: string, signal: AbortSignal): Promise<void> {
  const headers = { 'mcp-session-id': id, 'mcp-protocol-version': LATEST_LEGACY }
  await fetch(url, { method: 'DELETE', headers, signal })
}
