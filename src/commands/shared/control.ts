import type { Env } from '../../config/files/interpolate.ts'
import { findToken } from '../../gateway/control-token.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { type Cancel, type Millis, systemClock } from '../../mesh/clock.ts'
import { isObject, parseJson } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'
import { formatDuration } from '../../units/duration.ts'
import { BodyError, bodyText } from './body-text.ts'

export interface Request {
  readonly method: 'GET' | 'POST' | 'PUT'
  /** The path with its query string. */
  readonly path: string
  readonly body?: unknown
  /** True if the answer is text instead of JSON. */
  readonly isText?: boolean
}

/** The gateway's answer, or the reason for a failure in words. */
export type Answered =
  | { readonly ok: true; readonly value: unknown }
  | {
      readonly ok: false
      readonly message: string
      /** True if nothing listens at the address. */
      readonly isAbsent?: boolean
    }

/** Asks a running gateway over its control port. Never rejects. */
export type Control = (request: Request) => Promise<Answered>

/** Timeout of a request, in milliseconds. */
const PATIENCE_MS: Millis = 10_000

/**
 * Timeout of a request during a run, in milliseconds. A short timeout could end a run of hours when the machine is
 * busy; after Ctrl-C shorter timeouts apply.
 */
export const RUN_PATIENCE_MS: Millis = 60_000

/**
 * Timeout of a request after the user stopped the run, and of each request after a first timeout, in milliseconds.
 * Ending a run takes several requests, and a hanging gateway delays each of them.
 */
const HURRY_MS: Millis = 4_000
const HUNG_MS: Millis = 500

/** Maximum size of an answer, in bytes: an experiment's samples of 50,000 units take about 15 MiB. */
const MAX_ANSWER = 64 * 1024 ** 2

/** A control token and its source. */
interface Access {
  readonly base: string
  readonly token: string | undefined
  readonly file?: string
  readonly why?: string
}

export interface ControlOptions {
  readonly base: string
  /** The token given by the user. If undefined, the token file of the gateway is read. */
  readonly token: string | undefined
  readonly env: Env
  /**
   * Aborts when the user stops a run. A request times out after 60 s before the signal, after 4 s once it has aborted,
   * and after 0.5 s following a first timeout. Undefined outside a run: a request then times out after 10 s.
   */
  readonly hurry?: Signal
}

export function controlAt({ base: asked, token: given, env, hurry }: ControlOptions): Control {
  let known: Promise<Access> | undefined
  let isHung = false
  return async ({ method, path, body, isText = false }) => {
    const access = await (known ??= accessTo(asked, given, env))
    const { base, token } = access
    const patience = new Patience(hurry, isHung ? HUNG_MS : HURRY_MS)
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
      // Other refusals have the same status code, so only the header shows that the token is missing or wrong.
      if (status >= 400 && headers.has('www-authenticate')) {
        // Cancels the body, because it may be endless.
        void response.body?.cancel().catch(() => undefined)
        return failed(refusedToken(access))
      }
      const text = await bodyText(response, { maxBytes: MAX_ANSWER, signal: patience.signal })
      if (isText && status < 400) return { ok: true, value: text }
      return understood(access, status, parseJson(text))
    } catch (error) {
      if (patience.signal.aborted) {
        isHung ||= hurry?.aborted === true
        return failed(`${base} did not answer within ${formatDuration(patience.ms)}`)
      }
      return error instanceof BodyError
        ? failed(`${base} ${error.message}`)
        : unreachable(base, error as Error)
    } finally {
      patience.end()
    }
  }
}

/** The timeout of a request. It becomes shorter once `hurry` aborts. */
class Patience {
  readonly #abort = new AbortController()
  readonly #hurry: Signal | undefined
  readonly #hurryMs: Millis
  #cancel: Cancel
  ms: Millis

  constructor(hurry: Signal | undefined, hurryMs: Millis) {
    this.#hurry = hurry
    this.#hurryMs = hurryMs
    this.ms = hurry === undefined ? PATIENCE_MS : RUN_PATIENCE_MS
    this.#cancel = this.#after()
    if (hurry?.aborted === true) this.#shorten()
    else hurry?.addEventListener('abort', this.#shorten)
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  end(): void {
    this.#cancel()
    this.#hurry?.removeEventListener('abort', this.#shorten)
  }

  readonly #shorten = (): void => {
    this.#cancel()
    this.ms = this.#hurryMs
    this.#cancel = this.#after()
  }

  #after(): Cancel {
    return systemClock.after(this.ms, () => this.#abort.abort())
  }
}

async function accessTo(base: string, given: string | undefined, env: Env): Promise<Access> {
  const token = given ?? (env.BREAKWATER_TOKEN || undefined)
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
    return {
      base,
      token: undefined,
      why: 'the given token has blanks, line ends or other characters forbidden in headers',
    }
  if (token !== undefined) return { base, token }
  const found = await findToken(base, env)
  return found.ok ? found : { base, token: undefined, why: found.why }
}

const failed = (message: string): Answered => ({ ok: false, message })

function unreachable(base: string, { message, cause }: Error): Answered {
  const code = isObject(cause) ? String(cause.code ?? cause.message) : message
  // The Fetch standard forbids ports of other protocols, such as 6000 and 10080.
  const why =
    code === 'bad port' ? 'HTTP clients refuse this port; let the gateway listen at another port' : code
  if (code !== 'ECONNREFUSED') return failed(`${base} cannot be reached: ${why}`)
  const absent = `nothing listens at ${base.replace(/\/$/, '')}: is the gateway running, and is this its control port? (--control URL)`
  return { ok: false, message: absent, isAbsent: true }
}

function understood(access: Access, status: number, value: unknown): Answered {
  if (status < 400 && value !== undefined) return { ok: true, value }
  if (!isObject(value) || typeof value.error !== 'string')
    return failed(`${access.base} does not answer like the control port of a gateway (status ${status})`)
  // Both ports of a gateway answer an unknown path with `no route`.
  if (status === 404 && value.error.startsWith('no route '))
    return failed(
      `${access.base} is not the control port of a gateway with this command: ${printable(value.error)} (--control URL)`,
    )
  return failed([value.error, ...findingsIn(value.findings)].map((line) => printable(line)).join('\n  '))
}

function refusedToken({ token, file, why }: Access): string {
  if (token === undefined)
    return `the gateway wants its control token: give it with --token or in BREAKWATER_TOKEN (${why})`
  if (file === undefined)
    return 'the gateway does not know this token; use gateway.controlToken of its config, or the output of `breakwater token`'
  return (
    `the gateway does not know the token in ${file}, left by a killed gateway or by another user's: ` +
    'give the right one with --token or in BREAKWATER_TOKEN'
  )
}

function findingsIn(findings: unknown): string[] {
  return Array.isArray(findings)
    ? findings.filter(isObject).map(({ path, message }) => [path, message].filter(Boolean).join(': '))
    : []
}
