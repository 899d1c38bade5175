import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayErrorText, respond } from '../../src/downstream/respond.ts'
import { newRecord, type Outcome } from '../../src/mesh/call.ts'
import { gatewayError, type Reason, reasons } from '../../src/mesh/errors.ts'
import { breakerOpen } from '../../src/policies/breaker/state-machine.ts'
import type { Effect } from '../../src/mesh/policy.ts'
import { bulkheadFull } from '../../src/policies/bulkhead.ts'

const errorOf = (text: string) =>
  (JSON.parse(text) as { error: { code: number; message: string; data: Record<string, unknown> } }).error

test('a reply of the server passes as it came, status included', () => {
  const result = { text: '{"x":1.0}', value: { error: {} }, status: 400 }
  const outcome: Outcome = { kind: 'answered', result, verdict: 'rpc_error' }
  assert.equal(respond(1, outcome, {}), result)
})

test("a server's 404 reaches the agent as 200: as 404 it would end the agent's session", () => {
  const result = { text: '{"x":1.0}', value: {}, status: 404 }
  const outcome: Outcome = { kind: 'answered', result, verdict: 'rpc_error' }
  assert.deepEqual(respond(1, outcome, {}), { ...result, status: 200 })
})

test('a result reaches the agent as 200 whatever the status of the server, or its client would throw it away', () => {
  const result = { text: '{"result":{}}', value: { result: {} }, status: 500 }
  const outcome: Outcome = { kind: 'answered', result, verdict: 'unchecked' }
  assert.deepEqual(respond(1, outcome, {}), { ...result, status: 200 })
})

test('an error of ours tells what happened, where, whether it may have run, and when to try again', () => {
  const record = { ...newRecord(0), attempts: 3 }
  const error = gatewayError('upstream_rate_limited', 'too fast', { sent: true, retryAfterMs: 1_000.2 })
  const { text, status } = respond('id', { kind: 'failed', error }, { server: 's', tool: 't', record })
  assert.equal(status, 200)
  assert.deepEqual(JSON.parse(text), {
    jsonrpc: '2.0',
    id: 'id',
    error: {
      code: 1429,
      message: 's/t: too fast; it was turned down; try again in 2s',
      data: {
        code: 'BW_UPSTREAM_RATE_LIMITED',
        reason: 'upstream_rate_limited',
        server: 's',
        tool: 't',
        retryable: true,
        retryAfterMs: 1_001,
        attempts: 3,
        sent: true,
      },
    },
  })
})

test('unknown facts are left out of an error', () => {
  const error = errorOf(gatewayErrorText(null, gatewayError('overloaded', 'full'), {}))
  assert.equal(error.message, 'full')
  assert.deepEqual(error.data, {
    code: 'BW_OVERLOADED',
    reason: 'overloaded',
    retryable: true,
    attempts: 0,
    sent: false,
  })
  assert.equal(
    errorOf(gatewayErrorText(1, gatewayError('overloaded', 'full'), { server: 's' })).message,
    's: full',
  )
})

test('a rejected call reads like a failed one, and names the policy that rejected it', () => {
  const error = gatewayError(bulkheadFull, 'bulkhead full (8 of 8)')
  const rejected = errorOf(respond(1, { kind: 'rejected', error, by: 'bulkhead' }, {}).text)
  const failed = errorOf(respond(1, { kind: 'failed', error }, {}).text)
  assert.deepEqual(rejected, { ...failed, data: { ...failed.data, by: 'bulkhead' } })
})

test('an error says whether a tool call ran, and when to retry any request', () => {
  const messageOf = (sent: boolean, retryAfterMs?: number, tool?: string) =>
    errorOf(
      gatewayErrorText(1, gatewayError('overloaded', 'full', { sent, retryAfterMs }), { server: 's', tool }),
    ).message
  assert.equal(messageOf(false, undefined, 't'), 's/t: full; it was not sent')
  assert.equal(messageOf(true, undefined, 't'), 's/t: full; it may have run')
  assert.equal(messageOf(false, 999.5), 's: full; try again in 1s')
  assert.equal(messageOf(false, 3_000, 't'), 's/t: full; it was not sent; try again in 3s')
})

test('only a session that is lost for good is an HTTP error', () => {
  for (const reason of Object.keys(reasons) as Reason[]) {
    const { status, text } = respond(1, { kind: 'failed', error: gatewayError(reason, 'x') }, {})
    assert.equal(status, reason === 'session_lost' ? 404 : 200, reason)
    assert.equal(errorOf(text).code, reasons[reason].code)
  }
})

const resultOf = (text: string) =>
  (JSON.parse(text) as { id: unknown; result: Record<string, unknown> }).result

test("with the server's setting, an error about a tool call is a result for the model", () => {
  const error = gatewayError(breakerOpen, 'breaker open', { retryAfterMs: 2_500 })
  const subject = { server: 's', tool: 't', record: newRecord(0) }
  const { text, status } = respond('id', { kind: 'rejected', error, by: 'breaker' }, subject, {
    deliver: 'tool_result',
  })
  assert.equal(status, 200)
  assert.deepEqual(JSON.parse(text), {
    jsonrpc: '2.0',
    id: 'id',
    result: {
      content: [
        {
          type: 'text',
          text: 'The gateway could not get an answer from s/t: breaker open. The call was not sent. Try again in 3s.',
        },
      ],
      isError: true,
      _meta: {
        'dev.breakwater/error': {
          code: 'BW_BREAKER_OPEN',
          reason: 'breaker_open',
          by: 'breaker',
          server: 's',
          tool: 't',
          retryable: true,
          retryAfterMs: 2_500,
          attempts: 0,
          sent: false,
        },
      },
    },
  })
})

test('a model is told what to do next', () => {
  const said = (reason: Reason, sent: boolean, effect?: Effect) => {
    const error = gatewayError(reason, 'x', { sent, retryAfterMs: sent ? 100 : undefined })
    const manner = { deliver: 'tool_result', ...(effect && { effectOf: () => effect }) } as const
    const { text } = respond(1, { kind: 'failed', error }, { server: 's', tool: 't' }, manner)
    return (resultOf(text).content as { text: string }[])[0]?.text.split('x. ')[1]
  }
  const uncertain = 'The call may have run. First check whether it has run: calling again may do it twice.'
  assert.equal(said('attempt_timeout', true), uncertain)
  assert.equal(said('attempt_timeout', true, 'write'), uncertain)
  assert.equal(said('attempt_timeout', true, 'read_only'), 'The call may have run. Try again in 100ms.')
  assert.equal(said('upstream_rate_limited', true), 'The call was turned down. Try again in 100ms.')
  assert.equal(said('upstream_unavailable', false), 'The call was not sent. Try again later.')
  assert.equal(
    said('invalid_arguments', false),
    'The call was not sent. Trying the same call again will not help.',
  )
})

test('the error advises against a retry of a call that may have run, unless its tool is known to be harmless', () => {
  const told = (effect: Effect, tool?: string) => {
    const error = gatewayError('upstream_disconnected', 'x', { sent: true, retryAfterMs: 5 })
    const { text } = respond(1, { kind: 'failed', error }, { server: 's', tool }, { effectOf: () => effect })
    const { retryable, retryAfterMs } = errorOf(text).data
    return [retryable, retryAfterMs]
  }
  for (const effect of ['unknown', 'write'] as const) assert.deepEqual(told(effect, 't'), [false, undefined])
  for (const effect of ['read_only', 'idempotent'] as const) assert.deepEqual(told(effect, 't'), [true, 5])
  assert.deepEqual(told('unknown'), [true, 5], 'the request calls no tool')
})

test('non-tool requests, tasks and lost sessions get a protocol error despite the setting', () => {
  const error = gatewayError(breakerOpen, 'breaker open')
  const value = { params: { name: 't', task: {} } }
  const subjects = [{}, { server: 's' }, { server: 's', tool: 't', message: { text: '', value } }]
  for (const subject of subjects)
    assert.equal(
      errorOf(respond(1, { kind: 'failed', error }, subject, { deliver: 'tool_result' }).text).code,
      1503,
    )
  const lost = gatewayError('session_lost', 'gone')
  const response = respond(
    1,
    { kind: 'failed', error: lost },
    { server: 's', tool: 't' },
    { deliver: 'tool_result' },
  )
  assert.equal(response.status, 404)
  assert.equal(errorOf(response.text).code, 1404)
})

test('a partial reply is flagged on its way out', () => {
  const result = { text: '{"id":1,"result":{}}', value: { id: 1, result: {} }, status: 200 }
  const partial = { source: 'stale', reason: 'old', notice: false } as const
  const { text } = respond(1, { kind: 'answered', result, verdict: 'unchecked', partial }, {})
  assert.deepEqual(resultOf(text), {
    _meta: { 'dev.breakwater/partial': { source: 'stale', reason: 'old' } },
  })
})
