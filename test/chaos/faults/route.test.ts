import assert from 'node:assert/strict'
import { test } from 'node:test'
import { resultIn } from '../../../src/chaos/fault.ts'
import { registryFaults } from '../../../src/chaos/faults/registry.ts'
import { routeFaults } from '../../../src/chaos/faults/route.ts'
import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testInjection } from '../../support/injection.ts'

const here = answering({ content: ['here'] })
const there = answering({ content: ['there'] })

function shotWith(mirror: Service = there) {
  return testInjection({
    faultEnvironment: { sendTo: (call, server) => (server === 'mirror' ? mirror(call) : undefined) },
  })
}

const contentOf = (outcome: Outcome) => resultIn(outcome)?.content

const { layer, schema } = routeFaults['route.wrong_backend']

test('a call sent to the wrong server gets the answer of this server, counted as corrupted', async () => {
  const injection = shotWith()
  const outcome = await layer(schema.parse({ server: 'mirror' }), injection)(here)(toolCall('tool'))
  assert.deepEqual(contentOf(outcome), ['there'])
  assert.ok(injection.isChanged(outcome))
  assert.deepEqual(injection.notes, [{ server: 'mirror' }])
})

test('a call to a missing or right server goes its normal way', async () => {
  for (const server of ['nowhere', 'test']) {
    const injection = shotWith()
    assert.deepEqual(contentOf(await layer(schema.parse({ server }), injection)(here)(toolCall('tool'))), [
      'here',
    ])
    assert.deepEqual(injection.inapplicable, [`there is no other server ${server}`])
  }
})

test('when the wrong server fails, the call fails', async () => {
  const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_unavailable', 'down') }
  const injection = shotWith(() => Promise.resolve(failed))
  assert.equal(await layer(schema.parse({ server: 'mirror' }), injection)(here)(toolCall('tool')), failed)
})

test('a call that waits for the wrong server goes its normal way after a release', async () => {
  const injection = shotWith(() => new Promise(() => undefined))
  const outcome = layer(schema.parse({ server: 'mirror' }), injection)(here)(toolCall('tool'))
  injection.release()
  assert.deepEqual(contentOf(await outcome), ['here'])
})

test('a call goes to the wrong server only below all policies', () => {
  assert.deepEqual(routeFaults['route.wrong_backend'].sides, ['upstream'])
})

const moved = registryFaults['registry.moved']
const movedLayer = (config: object, injection = shotWith()) => ({
  injection,
  service: moved.layer(moved.schema.parse(config), injection)(here),
})

test('a moved tool gives its new place', async () => {
  const { injection, service } = movedLayer({ tools: ['to*'], replacement: 'mirror/tool2' })
  const outcome = await service(toolCall('tool'))
  assert.equal(outcome.kind, 'answered')
  const { error } = outcome.kind === 'answered' ? outcome.result.value : {}
  assert.deepEqual(error, { code: -32602, message: 'Tool tool has moved, use mirror/tool2 instead' })
  assert.deepEqual(contentOf(await service(toolCall('other'))), ['here'])
  assert.equal(injection.inapplicable.length, 1)
})

test('a silently moved tool is answered from its new place', async () => {
  const { injection, service } = movedLayer({ replacement: 'mirror', mode: 'silent' })
  assert.deepEqual(contentOf(await service(toolCall('tool'))), ['there'])
  assert.equal(injection.faultEnvironment.sent[0]?.call.tool, 'tool')
})

test('a moved tool may have another name in its new place', async () => {
  const calls: Call[] = []
  const injection = shotWith((call) => {
    calls.push(call)
    return there(call)
  })
  const { service } = movedLayer({ replacement: 'mirror/a/b', mode: 'silent' }, injection)
  await service(toolCall('tool', { x: 1 }))
  const [call] = calls
  assert.equal(call?.tool, 'a/b')
  assert.deepEqual(call?.message.value.params, { name: 'a/b', arguments: { x: 1 } })
  assert.deepEqual(JSON.parse(call?.message.text ?? ''), call?.message.value)
})
