import type { CallRecord, CallResult, Outcome, RequestId } from '../mesh/call.ts'
import { reasons, type GatewayError } from '../mesh/errors.ts'
import { errorText } from '../protocol/jsonrpc.ts'

/** What an error is about, as far as the caller may know. */
export interface Subject {
  readonly server?: string | undefined
  readonly tool?: string | undefined
  readonly record?: CallRecord | undefined
}

/** A complete JSON-RPC response, and the HTTP status that goes with it. */
export interface Response {
  readonly text: string
  readonly status: number
  /** What `JSON.parse` made of `text`, where somebody has done that already. */
  readonly value?: CallResult['value']
}

/** Writes an outcome as JSON-RPC: a server's reply as it came, one of our errors with what an agent can act on. */
export function respond(id: RequestId, outcome: Outcome, subject: Subject): Response {
  if (outcome.kind === 'answered') return outcome.result
  const text = gatewayErrorText(id, outcome.error, subject)
  return { text, status: outcome.error.reason === 'session_lost' ? 404 : 200 }
}

/** The text of an error of ours: what happened, whether the call may have run, and when to try again. */
export function gatewayErrorText(
  id: RequestId | null,
  error: GatewayError,
  { server, tool, record }: Subject,
): string {
  const { code, stable, retryable } = reasons[error.reason]
  const where = server === undefined ? '' : `${tool === undefined ? server : `${server}/${tool}`}: `
  return errorText(id, code, where + error.message, {
    code: stable,
    reason: error.reason,
    ...(server === undefined ? {} : { server }),
    ...(tool === undefined ? {} : { tool }),
    retryable,
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: Math.ceil(error.retryAfterMs) }),
    attempts: record?.attempts ?? 0,
    sent: error.sent,
  })
}
