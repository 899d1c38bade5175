import { systemClock } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'

export interface Request {
  readonly method: 'GET' | 'POST'
  /** With its query. */
  readonly path: string
  readonly body?: unknown
}

/** What the gateway answered, or in words why it did not do it. */
export type Answered =
  { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly message: string }

/** Asks a running gateway over its control port. Never rejects. */
export type Control = (request: Request) => Promise<Answered>

/** How long a gateway may take, in milliseconds. */
const PATIENCE_MS = 10_000

/** `base`: URL of the control port. */
export function controlAt(base: string, token: string | undefined): Control {
  return async ({ method, path, body }) => {
    const patience = new AbortController()
    const cancel = systemClock.after(PATIENCE_MS, () => patience.abort())
    try {
      const response = await fetch(new URL(path, base), {
        method,
        headers: {
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        redirect: 'error',
        signal: patience.signal,
      })
      return understood(base, response.status, parseJson(await response.text()), token)
    } catch (error) {
      if (patience.signal.aborted) return failed(`${base} did not answer within ${PATIENCE_MS / 1_000} s`)
      return failed(unreachable(base, error as Error))
    } finally {
      cancel()
    }
  }
}

const failed = (message: string): Answered => ({ ok: false, message })

function unreachable(base: string, { message, cause }: Error): string {
  const code = isObject(cause) ? String(cause.code ?? cause.message) : message
  if (code === 'ECONNREFUSED')
    return `nothing listens at ${base}: is the gateway running, and is this its control port? (--control URL)`
  return `${base} cannot be reached: ${code}`
}

function understood(base: string, status: number, value: unknown, token: string | undefined): Answered {
  if (status < 400 && value !== undefined) return { ok: true, value }
  if (status === 401) {
    return failed(
      token === undefined
        ? 'the gateway wants its control token: give it with --token or in BREAKWATER_TOKEN'
        : 'the gateway does not know this token; it is gateway.controlToken of its config',
    )
  }
  if (!isObject(value) || typeof value.error !== 'string')
    return failed(`${base} does not answer as the control port of a gateway does (status ${status})`)
  return failed([value.error, ...findingsIn(value.findings)].map((line) => printable(line)).join('\n  '))
}

function findingsIn(findings: unknown): string[] {
  return Array.isArray(findings)
    ? findings.filter(isObject).map(({ path, message }) => [path, message].filter(Boolean).join(': '))
    : []
}
