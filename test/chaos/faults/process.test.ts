import assert from 'node:assert/strict'
import { test } from 'node:test'
import { processFaults } from '../../../src/chaos/faults/process.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testShot, type TestShotParts } from '../../support/shot.ts'

const kill = processFaults['proc.kill']
const stdio = { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) as const }

function setUp(config: unknown, parts: TestShotParts = { world: stdio }) {
  const shot = testShot(parts)
  let runs = 0
  const answer = answering({ content: [] })
  const service = kill.layer(
    kill.schema.parse(config),
    shot,
  )((call) => {
    runs++
    return answer(call)
  })
  return { shot, send: (server = 'test') => service(toolCall('echo', {}, { server })), runs: () => runs }
}

const errorOf = (outcome: Outcome) => (outcome.kind === 'failed' ? outcome.error : undefined)

test('the process gets the signal, and the call goes on to meet its fate', async () => {
  const { shot, send, runs } = setUp({})
  await send()
  assert.deepEqual(shot.world.killed, [{ server: 'test', signal: 'SIGTERM' }])
  assert.equal(runs(), 1)
  assert.deepEqual(shot.notes, [{ effect: 'killed', signal: 'SIGTERM' }])
})

test('any signal that ends a process will do, and no other', async () => {
  const { shot, send } = setUp({ signal: 'KILL' })
  await send()
  assert.equal(shot.world.killed[0]?.signal, 'SIGKILL')
  assert.equal(kill.schema.safeParse({ signal: 'STOP' }).success, false)
})

test('until it may be started again, the calls that are hit find no process', async () => {
  const { shot, send, runs } = setUp({ restartAfter: '5s' })
  await send()
  await shot.clock.advance(2_000)
  const error = errorOf(await send())
  assert.deepEqual(
    error,
    gatewayError(
      'upstream_unavailable',
      "the server's process ended and is not started again before 3000 ms have passed",
      { retryAfterMs: 3_000 },
    ),
  )
  assert.deepEqual([runs(), shot.world.killed.length], [1, 1])
  await shot.clock.advance(3_000)
  await send()
  assert.deepEqual([runs(), shot.world.killed.length], [2, 2])
})

test('each server has an outage of its own', async () => {
  const { shot, send, runs } = setUp({ restartAfter: '5s' })
  await send('one')
  await send('two')
  assert.deepEqual(
    shot.world.killed.map(({ server }) => server),
    ['one', 'two'],
  )
  assert.equal(runs(), 2)
})

test('where no process runs there is nothing to kill, and no outage', async () => {
  const { shot, send, runs } = setUp({ restartAfter: '5s' }, { world: { ...stdio, kill: () => false } })
  await send()
  await send()
  assert.equal(runs(), 2)
  assert.deepEqual(shot.inapplicable, ['the server has no process now', 'the server has no process now'])
})

test('a plan cannot kill the process of a server that is reached over HTTP', () => {
  assert.equal(kill.refuses({ transport: 'stdio', era: undefined }), undefined)
  assert.equal(
    kill.refuses({ transport: 'http', era: 'modern' }),
    'there is no process behind http; see conn.refused',
  )
  assert.deepEqual(kill.sides, ['upstream'])
})
