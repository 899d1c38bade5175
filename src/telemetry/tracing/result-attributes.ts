import { SpanStatusCode, type Attributes, type SpanStatus } from '@opentelemetry/api'
import type { Call, Outcome } from '../../mesh/call.ts'
import { resultOfCall } from '../../mesh/classify.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { ATTRIBUTES as A, TOOL_ERROR } from './spans.ts'
import { clipped } from './text.ts'

/** Adds what became of a call or of an attempt of it; returns the status that this gives its span. */
export function addResult(attributes: Attributes, { record }: Call, outcome: Outcome): SpanStatus {
  attributes[A.outcome] = resultOfCall(outcome, record)
  if (outcome.kind !== 'answered') {
    const { reason, message } = outcome.error
    attributes[A.errorType] = reason
    return { code: SpanStatusCode.ERROR, message: clipped(message) }
  }
  const { verdict, partial, result } = outcome
  attributes[A.verdict] = verdict
  if (partial !== undefined) attributes[A.partial] = partial.source
  if (verdict === 'rpc_error') {
    const code = codeOf(result.value.error)
    attributes[A.errorType] = code ?? verdict
    if (code !== undefined) attributes[A.statusCode] = code
    return { code: SpanStatusCode.ERROR }
  }
  const errorType = verdict === 'tool_error' ? TOOL_ERROR : wrong(verdict)
  if (errorType === undefined) return { code: SpanStatusCode.UNSET }
  attributes[A.errorType] = errorType
  return { code: SpanStatusCode.ERROR }
}

/** A reply that came, and that nobody can use. */
function wrong(verdict: string): string | undefined {
  return verdict === 'schema_invalid' || verdict === 'json_invalid' || verdict === 'partial_silent'
    ? verdict
    : undefined
}

function codeOf(error: unknown): string | undefined {
  return isObject(error) && typeof error.code === 'number' ? String(error.code) : undefined
}
