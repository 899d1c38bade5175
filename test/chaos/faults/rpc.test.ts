import assert from 'node:assert/strict'
import { test } from 'node:test'
import { rpcFaults } from '../../../src/chaos/faults/rpc.ts'
import { error } from '../../../src/chaos/faults/rpc/error.ts'
import { malformed } from '../../../src/chaos/faults/rpc/malformed.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { parseJson } from '../../../src/protocol/jsonrpc.ts'
import { newCall, toolCall } from '../../support/caller.ts'
import { answering, testShot } from '../../support/shot.ts'

const answer = answering({ content: [{ type: 'text', text: 'a, b}' }] })

test('a JSON-RPC error is an answer of the server to this very call', async () => {
  const shot = testShot()
  const outcome = await error.layer(error.schema.parse({}), shot)()(toolCall('echo', {}, { id: 7 }))
  assert.equal(outcome.kind === 'answered' && outcome.verdict, 'rpc_error')
  assert.deepEqual(outcome.kind === 'answered' && outcome.result.value, {
    jsonrpc: '2.0',
    id: 7,
    error: { code: -32603, message: 'Internal error' },
  })
})

test('code, message and data are those of the plan', async () => {
  const shot = testShot({ side: 'client' })
  const config = { code: -32000, message: 'injected', data: { hint: [1] } }
  const outcome = await error.layer(error.schema.parse(config), shot)()(toolCall('echo', {}, { id: 'a"b' }))
  assert.deepEqual(parseJson(shot.replies[0]?.body ?? ''), { jsonrpc: '2.0', id: 'a"b', error: config })
  assert.equal(outcome.wire, undefined, 'the edge writes it, under the id that the agent knows')
})

test('an id comes back digit by digit, even one that no double can hold', async () => {
  const shot = testShot()
  const text = '{"id": 12345678901234567890, "jsonrpc":"2.0","method":"tools/list"}'
  await error.layer(error.schema.parse({}), shot)()(newCall({ method: 'tools/list', text }))
  assert.match(shot.replies[0]?.body ?? '', /"id":12345678901234567890,/)
})

for (const side of ['upstream', 'client'] as const) {
  for (const kind of ['truncate', 'bad_json', 'wrong_content_type'] as const) {
    test(`a reply that is broken by ${kind} is made of the real one, and is no JSON (${side})`, async () => {
      const shot = testShot({ side })
      const outcome = await malformed.layer({ kind }, shot)(answer)(toolCall('echo'))
      assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'bad_reply')
      const [reply] = shot.replies
      assert.equal(parseJson(reply?.body ?? ''), undefined)
      assert.match(reply?.body ?? '', /"jsonrpc":"2.0"/)
      assert.match(
        reply?.headers['content-type'] ?? '',
        kind === 'wrong_content_type' ? /^text\/html/ : /^application\/json$/,
      )
      assert.equal(outcome.wire?.body, side === 'client' ? reply?.body : undefined)
      assert.deepEqual(shot.notes, [{ kind }])
    })
  }
}

test('a process has no content type to be wrong; its lines can still be broken', async () => {
  const world = { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) as const }
  const shot = testShot({ world })
  const outcome = await malformed.layer({ kind: 'wrong_content_type' }, shot)(answer)(toolCall('echo'))
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(shot.inapplicable, ['only replies over HTTP have a content type'])
  assert.equal((await malformed.layer({ kind: 'truncate' }, shot)(answer)(toolCall('echo'))).kind, 'failed')
})

const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_unavailable', 'gone') }

test('where there is no reply, none can be broken: the failure passes and the journal says so', async () => {
  for (const name of ['malformed', 'wrong_id', 'duplicate', 'late', 'reorder'] as const) {
    const fault = rpcFaults[`rpc.${name}`]
    const shot = testShot()
    const layer = fault.layer(fault.schema.parse({}) as never, shot)
    assert.equal(await layer(() => Promise.resolve(failed))(toolCall('echo')), failed, name)
    assert.equal(shot.inapplicable.length, 1, name)
  }
})

test('a reply that comes after the fault has ended is whole', async () => {
  for (const name of ['malformed', 'wrong_id', 'duplicate', 'late', 'reorder'] as const) {
    const fault = rpcFaults[`rpc.${name}`]
    const shot = testShot()
    const layer = fault.layer(fault.schema.parse({}) as never, shot)
    const call = toolCall('echo')
    const outcome = await layer((sent) => (shot.release(), answer(sent)))(call)
    assert.deepEqual(outcome, await answer(call), name)
    assert.deepEqual([shot.replies.length, shot.world.told.length, shot.clock.pending], [0, 0, 0], name)
  }
})

test('every kind is described, and takes no field that it does not know', () => {
  for (const [name, { about, schema }] of Object.entries(rpcFaults)) {
    assert.notEqual(about, '', name)
    assert.equal(schema.safeParse({ other: 1 }).success, false, name)
  }
})
