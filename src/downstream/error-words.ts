import type { Millis } from '../mesh/clock.ts'
import { reasons, type GatewayError } from '../mesh/errors.ts'

/** What an error is about, as far as the caller may know. */
interface Place {
  readonly server?: string | undefined
  readonly tool?: string | undefined
}

/** One line for logs and people: "search/query: breaker open; it was not sent; try again in 3 s". */
export function inShort(error: GatewayError, { server, tool }: Place): string {
  const where = placeOf(server, tool)
  const words = where === '' ? error.message : `${where}: ${error.message}`
  const ran = tool === undefined ? '' : `; it ${whatRan(error)}`
  return (
    words + ran + (error.retryAfterMs === undefined ? '' : `; try again in ${lasting(error.retryAfterMs)}`)
  )
}

/** Sentences for a model, which has to decide what to do next. */
export function forModel(error: GatewayError, { server, tool }: Place): string {
  const { retryable } = reasons[error.reason]
  const what = `The gateway could not get an answer of ${placeOf(server, tool)}: ${error.message}.`
  return `${what} The call ${whatRan(error)}. ${adviceOn(error, retryable)}`
}

function adviceOn({ sent, retryAfterMs }: GatewayError, retryable: boolean): string {
  if (!retryable) return 'To try the same again will not help.'
  const again = retryAfterMs === undefined ? 'Try again later' : `Try again in ${lasting(retryAfterMs)}`
  return sent ? `${again}; if the tool changes something, check first whether it has.` : `${again}.`
}

function placeOf(server: string | undefined, tool: string | undefined): string {
  if (server === undefined) return ''
  return tool === undefined ? server : `${server}/${tool}`
}

function whatRan({ sent }: GatewayError): string {
  return sent ? 'may have run' : 'was not sent'
}

/** A time to wait, rounded up: who comes too early is sent away again. */
function lasting(ms: Millis): string {
  return ms < 1_000 ? `${Math.ceil(ms)} ms` : `${Math.ceil(ms / 1_000)} s`
}
