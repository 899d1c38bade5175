import type { Env } from '../../config/files/interpolate.ts'
import { findToken } from '../../gateway/control-token.ts'
import { systemClock } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'
import { formatDuration } from '../../units/duration.ts'

export interface Request {
  readonly method: 'GET' | 'POST' | 'PUT'
  /** With its query. */
  readonly path: string
  readonly body?: unknown
  /** Whether the answer is any text, rather than JSON. */
  readonly isText?: boolean
}

/** What the gateway answered, or in words why it did not do it. */
export type Answered =
  { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly message: string }

/** Asks a running gateway over its control port. Never rejects. */
export type Control = (request: Request) => Promise<Answered>

/** Where a gateway is controlled unless its config says otherwise. */
export const DEFAULT_CONTROL = 'http://127.0.0.1:8081'

/** How long a gateway may take, in milliseconds. */
const PATIENCE_MS = 10_000

/** A control token, and how to say where it is from. */
interface Access {
  readonly base: string
  readonly token: string | undefined
  /** The file that it was found in. */
  readonly file?: string
  /** Why none was found. */
  readonly why?: string
}

export interface ControlOptions {
  /** URL of the control port. */
  readonly base: string
  /** The token that somebody gave; without one the gateway's own is looked for. */
  readonly token: string | undefined
  readonly env: Env
}

export function controlAt({ base: asked, token: given, env }: ControlOptions): Control {
  let known: Promise<Access> | undefined
  return async ({ method, path, body, isText = false }) => {
    const access = await (known ??= accessTo(asked, given, env))
    const { base, token } = access
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
      const { status, headers } = response
      // A status alone does not tell: there are others without leave than those without the token.
      if (status >= 400 && headers.has('www-authenticate')) return failed(refusedToken(access))
      const text = await response.text()
      if (isText && status < 400) return { ok: true, value: text }
      return understood(access, status, parseJson(text))
    } catch (error) {
      if (patience.signal.aborted)
        return failed(`${base} did not answer within ${formatDuration(PATIENCE_MS)}`)
      return failed(unreachable(base, error as Error))
    } finally {
      cancel()
    }
  }
}

async function accessTo(base: string, given: string | undefined, env: Env): Promise<Access> {
  const token = given ?? (env.BREAKWATER_TOKEN || undefined)
  if (token !== undefined) return { base, token }
  const found = await findToken(base, env)
  return found.ok ? found : { base, token: undefined, why: found.why }
}

const failed = (message: string): Answered => ({ ok: false, message })

function unreachable(base: string, { message, cause }: Error): string {
  const code = isObject(cause) ? String(cause.code ?? cause.message) : message
  if (code === 'ECONNREFUSED')
    return `nothing listens at ${base}: is the gateway running, and is this its control port? (--control URL)`
  return `${base} cannot be reached: ${code}`
}

function understood(access: Access, status: number, value: unknown): Answered {
  if (status < 400 && value !== undefined) return { ok: true, value }
  if (!isObject(value) || typeof value.error !== 'string')
    return failed(`${access.base} does not answer as the control port of a gateway does (status ${status})`)
  return failed([value.error, ...findingsIn(value.findings)].map((line) => printable(line)).join('\n  '))
}

function refusedToken({ token, file, why }: Access): string {
  if (token === undefined)
    return `the gateway wants its control token: give it with --token or in BREAKWATER_TOKEN (${why})`
  if (file === undefined)
    return 'the gateway does not know this token; it is gateway.controlToken of its config, or what `breakwater token` prints'
  return (
    `the gateway does not know the token in ${file}, which is of one that was ended by force or of another user's: ` +
    'give the right one with --token or in BREAKWATER_TOKEN'
  )
}

function findingsIn(findings: unknown): string[] {
  return Array.isArray(findings)
    ? findings.filter(isObject).map(({ path, message }) => [path, message].filter(Boolean).join(': '))
    : []
}
