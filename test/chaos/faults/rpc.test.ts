import { test } from 'node:test'
import { rpcFaults, error, malformed } from '../../../src/chaos/faults/rpc.ts'
import type { FaultType } from '../../../src/chaos/fault.ts'
import type { ShapedAnswer } from '../../../src/mesh/wire-shape.ts'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { parseJson } from '../../../src/protocol/jsonrpc.ts'
import { newCall, toolCall } from '../../support/caller.ts'
import { answering, faultLayer, testInjection, type TestInjection } from '../../support/injection.ts'

import assert from 'node:assert/strict'

const answer = answering({ content: [{ type: 'text', text: 'a, b}' }] })

test('a JSON-RPC error is an answer of the server to this very call', async () => {
  const injection = testInjection()
  const outcome = await error.layer(error.schema.parse({}), injection)()(toolCall('echo', {}, { id: 7 }))
  assert.equal(outcome.kind === 'answered' && outcome.verdict, 'rpc_error')
  assert.deepEqual(outcome.kind === 'answered' && outcome.result.value, {
    jsonrpc: '2.0',
    id: 7,
    error: { code: -32603, message: 'Internal error' },
  })
})

test('code, message and data are those of the plan', async () => {
  const injection = testInjection({ side: 'client' })
  const config = { code: -32000, message: 'injected', data: { hint: [1] } }
  const outcome = await error.layer(error.schema.parse(config), injection)()(
    toolCall('echo', {}, { id: 'a"b' }),
  )
  assert.deepEqual(parseJson(injection.replies[0]?.body ?? ''), { jsonrpc: '2.0', id: 'a"b', error: config })
  assert.equal(outcome.wire, undefined, 'the edge writes the reply, under the agent’s own id')
})

test('an id comes back digit by digit, even one that no double can hold', async () => {
  const injection = testInjection()
  const text = '{"id": 12345678901234567890, "jsonrpc":"2.0","method":"tools/list"}'
  await error.layer(error.schema.parse({}), injection)()(newCall({ method: 'tools/list', text }))
  assert.match(injection.replies[0]?.body ?? '', /"id":12345678901234567890,/)
})

for (const side of ['upstream', 'client'] as const) {
  for (const kind of ['truncate', 'bad_json', 'wrong_content_type'] as const) {
    test(`a reply broken by ${kind} is made from the real reply, and is no JSON (${side})`, async () => {
      const injection = testInjection({ side })
      const outcome = await malformed.layer({ kind }, injection)(answer)(toolCall('echo'))
      assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'bad_reply')
      const [reply] = injection.replies
      assert.equal(parseJson(reply?.body ?? ''), undefined)
      assert.match(reply?.body ?? '', /"jsonrpc":"2.0"/)
      assert.match(
        reply?.headers['content-type'] ?? '',
        kind === 'wrong_content_type' ? /^text\/html/ : /^application\/json$/,
      )
      assert.equal(outcome.wire?.body, side === 'client' ? reply?.body : undefined)
      assert.deepEqual(injection.notes, [{ kind }])
    })
  }
}

test('a process has no content type to be wrong; its lines can still be broken', async () => {
  const faultEnvironment = { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) as const }
  const injection = testInjection({ faultEnvironment })
  const outcome = await malformed.layer({ kind: 'wrong_content_type' }, injection)(answer)(toolCall('echo'))
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(injection.inapplicable, ['only replies over HTTP have a content type'])
})

/** Returns the answer to a call over a pipe and the shape that a fault asks for; `undefined` if none. */
async function shapedBy(type: FaultType<unknown>, config: object, injection: TestInjection) {
  const text = '{"jsonrpc":"2.0","id":7,"result":{"content":[]}}'
  const call = toolCall('echo', {}, { id: 'a' })
  let shaped: ShapedAnswer | undefined
  const outcome = await faultLayer(
    type,
    config,
    injection,
  )((sent) => {
    shaped = sent.wire?.answer?.take(text)
    return answer(sent)
  })(call)
  assert.deepEqual(outcome, await answer(call), 'the reader of the answer decides about the call')
  return { text, shaped }
}

for (const transport of ['stdio', 'sse'] as const) {
  const faultEnvironment = { kindOf: () => ({ transport, era: 'legacy' }) as const }

  test(`over ${transport} a fault notes the replacement of an answer when the replacement has come`, async () => {
    const cases: [keyof typeof rpcFaults, object, (text: string) => string[], object][] = [
      ['rpc.malformed', {}, (text) => [text.slice(0, text.length / 2)], { kind: 'truncate' }],
      ['rpc.malformed', { kind: 'bad_json' }, (text) => [`${text.slice(0, -1)},}`], { kind: 'bad_json' }],
      ['rpc.wrong_id', {}, (text) => [text.replace('7', '"a-other"')], { id: 'a-other' }],
      ['rpc.duplicate', {}, (text) => [text, text], { effect: 'orphan' }],
    ]
    for (const [type, config, texts, note] of cases) {
      const injection = testInjection({ faultEnvironment })
      const { text, shaped } = await shapedBy(rpcFaults[type], config, injection)
      assert.deepEqual(shaped, { texts: texts(text) }, type)
      assert.deepEqual([injection.notes, injection.inapplicable, injection.replies], [[note], [], []], type)
    }
  })

  test(`over ${transport} a late answer is held back, and delays the call only while waiting`, async () => {
    const held: Promise<unknown>[] = []
    const injection = {
      ...testInjection({ faultEnvironment }),
      delaying: <Settled>(_: Call, settled: Promise<Settled>) => (held.push(settled), settled),
    }
    const { text, shaped } = await shapedBy(rpcFaults['rpc.late'], { delay: '2s' }, injection)
    assert.deepEqual([shaped?.texts, shaped?.holdMs], [[text], 2_000])
    assert.deepEqual(injection.notes, [], 'the answer is not held back yet, and may never be')
    shaped?.holds?.(Promise.resolve())
    assert.deepEqual(injection.notes, [{ delayMs: 2_000 }])
    await Promise.all(held)
  })
}

test('two faults cannot shape one answer: the second says so, and does nothing', async () => {
  const faultEnvironment = { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) as const }
  const [outer, inner] = [testInjection({ faultEnvironment }), testInjection({ faultEnvironment })]
  const service = faultLayer(
    rpcFaults['rpc.duplicate'],
    {},
    outer,
  )(
    faultLayer(
      rpcFaults['rpc.malformed'],
      {},
      inner,
    )((call) => {
      assert.deepEqual(call.wire?.answer?.take('{}').texts, ['{}', '{}'])
      return answer(call)
    }),
  )
  await service(toolCall('echo'))
  assert.deepEqual(inner.inapplicable, ['another fault already changes the answer to this call'])
})

const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_unavailable', 'gone') }

test('without a reply nothing can be broken: the failure passes and the journal says so', async () => {
  for (const name of ['malformed', 'wrong_id', 'duplicate', 'late', 'reorder'] as const) {
    const injection = testInjection()
    const layer = faultLayer(rpcFaults[`rpc.${name}`], {}, injection)
    assert.equal(await layer(() => Promise.resolve(failed))(toolCall('echo')), failed, name)
    assert.equal(injection.inapplicable.length, 1, name)
  }
})

test('a reply that comes after the fault has ended is whole', async () => {
  for (const name of ['malformed', 'wrong_id', 'duplicate', 'late', 'reorder'] as const) {
    const injection = testInjection()
    const layer = faultLayer(rpcFaults[`rpc.${name}`], {}, injection)
    const call = toolCall('echo')
    const outcome = await layer((sent) => (injection.release(), answer(sent)))(call)
    assert.deepEqual(outcome, await answer(call), name)
    assert.deepEqual(
      [injection.replies.length, injection.faultEnvironment.told.length, injection.clock.pending],
      [0, 0, 0],
      name,
    )
  }
})

test('every kind is described, and accepts no unknown field', () => {
  for (const [name, { about, schema }] of Object.entries(rpcFaults)) {
    assert.notEqual(about, '', name)
    assert.equal(schema.safeParse({ other: 1 }).success, false, name)
  }
})
