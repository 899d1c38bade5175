import { test } from 'node:test'
import { refusalOf, type ServerKind } from '../../../../src/chaos/fault.ts'
import { headerMismatch, versionMismatch } from '../../../../src/chaos/faults/rpc.ts'
import { parseJson } from '../../../../src/protocol/jsonrpc.ts'
import { newCall, TestCaller, toolCall } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjection } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const never = () => assert.fail('the server got the call')
const answer = answering({ content: [] })

const kind = (transport: ServerKind['transport'], era: ServerKind['era']) => ({
  kindOf: () => ({ transport, era }),
})

const bodyOf = ({ replies: [reply] }: TestInjection) => {
  assert.equal(reply?.status, 400)
  return parseJson(reply.body)
}

test('a modern server refuses the version, and lists its own versions', async () => {
  for (const transport of ['http', 'stdio'] as const) {
    const injection = testInjection({ faultEnvironment: kind(transport, 'modern') })
    await versionMismatch.layer({}, injection)(never)(toolCall('echo', {}, { id: 7 }))
    assert.deepEqual(bodyOf(injection), {
      jsonrpc: '2.0',
      id: 7,
      error: {
        code: -32022,
        message: 'Unsupported protocol version',
        data: { supported: ['2025-11-25'], requested: '2026-07-28' },
      },
    })
  }
})

test('a legacy server refuses the header before reading the id', async () => {
  const injection = testInjection({ faultEnvironment: kind('http', 'legacy') })
  await versionMismatch.layer({}, injection)(never)(toolCall('echo', {}, { id: 7 }))
  const { id, error } = bodyOf(injection) as { id: null; error: { code: number; message: string } }
  assert.equal(id, null)
  assert.match(error.message, /^Bad Request: Unsupported protocol version \(supported versions: .*2025-06-18/)
  assert.doesNotMatch(error.message, /session/i, 'this would be taken for a lost session')
})

test('a server without a header, or whose era nobody knows, refuses no version', async () => {
  for (const faultEnvironment of [kind('stdio', 'legacy'), kind('sse', 'legacy'), kind('http', undefined)]) {
    const injection = testInjection({ faultEnvironment })
    const outcome = await versionMismatch.layer({}, injection)(answer)(toolCall('echo'))
    assert.equal(outcome.kind, 'answered')
    assert.equal(injection.inapplicable.length, 1)
  }
})

test('a modern server names the header that contradicts the body', async () => {
  const injection = testInjection({ faultEnvironment: kind('http', 'modern') })
  const layer = headerMismatch.layer({}, injection)
  await layer(never)(toolCall('echo', {}, { id: 7 }))
  const error = { code: -32020, message: 'Header mismatch: Mcp-Name' }
  assert.deepEqual(bodyOf(injection), { jsonrpc: '2.0', id: 7, error })
  await layer(never)(newCall({ method: 'tools/list' }))
  assert.match(injection.replies[1]?.body ?? '', /Header mismatch: Mcp-Method/)
})

test('legacy servers and stdio servers have no such headers', async () => {
  for (const faultEnvironment of [kind('http', 'legacy'), kind('stdio', 'modern'), kind('http', undefined)]) {
    const injection = testInjection({ faultEnvironment })
    assert.equal((await headerMismatch.layer({}, injection)(answer)(toolCall('echo'))).kind, 'answered')
    assert.equal(injection.inapplicable.length, 1)
  }
})

test('the era of the agent counts on the agent’s side', async () => {
  const modern = new TestCaller({ era: 'modern' })
  for (const [caller, code] of [
    [modern, -32022],
    [new TestCaller(), -32000],
  ] as const) {
    const injection = testInjection({ side: 'client', faultEnvironment: kind('stdio', 'legacy') })
    const { wire } = await versionMismatch.layer({}, injection)(never)(toolCall('echo', {}, { caller }))
    assert.equal(wire, undefined, 'the edge writes it, under the id that the agent knows')
    assert.equal(injection.replies[0]?.status, 400)
    assert.equal((parseJson(injection.replies[0].body) as { error: { code: number } }).error.code, code)
  }
  const injection = testInjection({ side: 'client', faultEnvironment: kind('stdio', 'legacy') })
  await headerMismatch.layer({}, injection)(never)(toolCall('echo', {}, { caller: modern }))
  assert.match(injection.replies[0]?.body ?? '', /-32020/)
})

test('a plan names the servers on which its refusals cannot work', () => {
  assert.equal(
    refusalOf(versionMismatch, { transport: 'stdio', era: 'legacy' }),
    'requests over stdio name no version in the legacy era',
  )
  assert.equal(refusalOf(versionMismatch, { transport: 'stdio', era: undefined }), undefined)
  assert.equal(refusalOf(versionMismatch, { transport: 'http', era: 'legacy' }), undefined)
  assert.equal(refusalOf(headerMismatch, { transport: 'stdio', era: 'modern' }), 'stdio has no headers')
  assert.equal(
    refusalOf(headerMismatch, { transport: 'http', era: 'legacy' }),
    'the legacy era has no headers that repeat the body',
  )
  assert.equal(refusalOf(headerMismatch, { transport: 'http', era: 'modern' }), undefined)
})
