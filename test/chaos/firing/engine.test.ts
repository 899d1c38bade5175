import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { injectedFaults } from '../../../src/mesh/injected.ts'
import { injector } from '../../../src/chaos/firing/engine.ts'
import { toolCall } from '../../support/caller.ts'
import { answer, fault, rig } from '../rig.ts'

const resultOf = (outcome: Outcome) =>
  outcome.kind === 'answered' ? outcome.result.value.result : outcome.error

test('while nothing is armed, calls pass untouched', async () => {
  const { send, apply } = rig()
  apply({ enabled: true, faults: [fault('a', 'test.spoil')] })
  const call = toolCall('t')
  assert.deepEqual(await send(call), answer())
  assert.equal(injectedFaults.of(call.record), undefined)
})

test('an armed fault hits its targets, and nothing else', async () => {
  const { send, arm } = rig()
  arm([
    fault('a', 'test.spoil', {
      match: { server: 'test', tool: 'q*', tenant: 't1', header: { 'x-chaos': 'yes' } },
    }),
  ])
  const hit = { tenant: 't1', inbound: { 'x-chaos': 'yes' } }
  const isHit = (call: Parameters<typeof send>[0]) =>
    send(call).then(() => injectedFaults.of(call.record) !== undefined)
  assert.equal(await isHit(toolCall('query', {}, hit)), true)
  assert.equal(await isHit(toolCall('other', {}, hit)), false)
  assert.equal(await isHit(toolCall('query', {}, { ...hit, server: 'another' })), false)
  assert.equal(await isHit(toolCall('query', {}, { ...hit, tenant: 't2' })), false)
  assert.equal(await isHit(toolCall('query', {}, { ...hit, inbound: {} })), false)
})

test('a protected server is skipped on both sides, from the next call on', async () => {
  const guarded = new Set<string>()
  const { send, upstream, arm, controller, tally } = rig({ isProtected: (server) => guarded.has(server) })
  arm([fault('near', 'test.spoil', { side: 'client' }), fault('far', 'test.spoil')])
  const hits = async () => {
    const call = toolCall('t')
    await send(call)
    return injectedFaults.of(call.record)?.length ?? 0
  }
  assert.equal(await hits(), 2)
  assert.equal(controller.engine.aims('upstream', 'test', 'tools/call'), true)
  guarded.add('test')
  assert.equal(await hits(), 0)
  assert.deepEqual(await upstream(toolCall('t')), answer())
  assert.equal(controller.engine.aims('upstream', 'test', 'tools/call'), false)
  const other = toolCall('t', {}, { server: 'other' })
  await send(other)
  assert.equal(injectedFaults.of(other.record)?.length, 2)
  assert.equal(tally('far').hits, 2)
  guarded.clear()
  assert.equal(await hits(), 2)
})

test('a server that becomes protected releases its held calls, and no others', async () => {
  const { send, arm, controller } = rig()
  arm([
    fault('here', 'test.hold', { match: { server: 'te*' } }),
    fault('there', 'test.hold', { match: { server: 'other' } }),
  ])
  const held = send(toolCall('t'))
  let isOver = false
  const away = send(toolCall('t', {}, { server: 'other' })).then(() => (isOver = true))
  controller.spare(['test'])
  assert.deepEqual(await held, answer())
  assert.equal(isOver, false)
  controller.disarm('me', 'the end')
  await away
})

test('a fault says once for each server that its list is awaited, and again when the list is lost again', async () => {
  const unknown = new Set(['a', 'b'])
  const { send, arm, events, tally, controller } = rig({
    effectOf: () => 'unknown',
    awaitsList: (server) => unknown.has(server),
  })
  arm([fault('gone', 'test.spoil')])
  const call = async (...servers: readonly string[]) => {
    for (const server of servers) await send(toolCall('t', {}, { server }))
  }
  const told = () => events.filter(({ type }) => type === 'list_unknown').map(({ detail }) => detail?.server)
  await call('a', 'a', 'b', 'c')
  assert.deepEqual(told(), ['a', 'b'])
  assert.deepEqual(tally('gone').awaitedLists, ['a', 'b'])
  unknown.delete('a')
  assert.deepEqual(tally('gone').awaitedLists, ['b'])
  await call('a')
  unknown.add('a')
  await call('a', 'b')
  assert.deepEqual(told(), ['a', 'b', 'a'])
  assert.deepEqual(
    controller.journal.decisions().map(({ because }) => because),
    ['list_unknown', 'list_unknown', 'list_unknown', 'write', 'write', 'list_unknown', 'list_unknown'],
  )
})

test('all faults that match are evaluated, and nest in the order of the plan', async () => {
  const { send, arm } = rig()
  arm([
    fault('never', 'test.spoil', { rate: 0 }),
    fault('outer', 'test.spoil', { to: 'outer' }),
    fault('inner', 'test.spoil', { to: 'inner' }),
  ])
  const call = toolCall('t')
  assert.deepEqual(resultOf(await send(call)), { structuredContent: { was: 'outer' } })
  assert.deepEqual(
    injectedFaults.of(call.record)?.map(({ name, status }) => [name, status]),
    [
      ['outer', 'applied'],
      ['inner', 'applied'],
    ],
  )
})

test('a fault whose layer is never reached gives its place back and is not counted as a hit', async () => {
  const { send, arm, tally } = rig()
  arm([fault('outer', 'test.fail'), fault('inner', 'test.hold', { maxConcurrent: 1 })])
  for (let round = 0; round < 3; round++) assert.equal((await send(toolCall('t'))).kind, 'failed')
  const { hits, notReached, concurrent, overflow } = tally('inner')
  assert.deepEqual(
    { hits, notReached, concurrent, overflow },
    { hits: 0, notReached: 3, concurrent: 0, overflow: 0 },
  )
})

test('a changed result keeps every other byte of the reply, and is marked nowhere', async () => {
  const text = '{"jsonrpc":"2.0","id":1, "extra":1e400,"result":{"structuredContent":{"was":"original"}}}'
  const outcome: Outcome = {
    kind: 'answered',
    result: { text, value: JSON.parse(text) as Record<string, unknown>, status: 200 },
    verdict: 'unchecked',
  }
  const { send, arm } = rig({ server: () => Promise.resolve(outcome) })
  arm([fault('a', 'test.spoil')])
  const changed = await send(toolCall('t'))
  assert.equal(changed.kind === 'answered' && changed.result.text, text.replace('original', 'spoiled'))
})

test('a fault at the client puts its reply on the wire; a fault upstream gives its reply to the gateway', async () => {
  for (const side of ['client', 'upstream'] as const) {
    const { send, arm } = rig()
    arm([fault('a', 'test.reply', { side })])
    const { kind, wire } = await send(toolCall('t'))
    assert.equal(kind, 'failed')
    const expected = { status: 503, headers: { 'retry-after': '1' }, body: 'busy' }
    assert.deepEqual(wire, side === 'client' ? expected : undefined)
  }
})

test('tools not known to be read-only need permission for writes', async () => {
  const { send, arm, controller } = rig({ effectOf: () => 'unknown' })
  arm([fault('a', 'test.spoil'), fault('b', 'test.spoil', { allowWrites: true, match: { tool: 'u' } })])
  await send(toolCall('t'))
  await send(toolCall('u'))
  const decided = controller.journal.decisions().map((entry) => [entry.fault, entry.call.tool, entry.because])
  assert.deepEqual(decided, [
    ['a', 't', 'write'],
    ['a', 'u', 'write'],
    ['b', 'u', undefined],
  ])
})

test('a fault that keeps calls from the server needs no permission for writes', async () => {
  const { send, arm, controller } = rig({ effectOf: () => 'unknown' })
  arm([fault('a', 'test.withheld')])
  await send(toolCall('t'))
  assert.deepEqual(
    controller.journal.decisions().map(({ because }) => because),
    [undefined],
  )
})

test('a fault skips servers outside its abilities', async () => {
  const { send, arm, controller } = rig()
  arm([fault('a', 'test.reply')])
  assert.equal((await send(toolCall('t', {}, { server: 'pipe' }))).kind, 'answered')
  assert.equal(controller.journal.decisions()[0]?.because, 'refused')
})

test('a fault stops at its largest number of injections', async () => {
  const { send, arm, tally } = rig()
  arm([fault('a', 'test.spoil', { maxInjections: 2 })])
  for (let round = 0; round < 5; round++) await send(toolCall('t'))
  assert.equal(tally('a').hits, 2)
  assert.equal(tally('a').decided, 5)
})

test('beyond its largest number of concurrent calls, a fault lets calls pass and counts them', async () => {
  const { send, arm, tally, clock } = rig()
  arm([fault('a', 'test.hold', { maxConcurrent: 2 })])
  const calls = [1, 2, 3].map((x) => send(toolCall('t', { x })))
  assert.deepEqual(await calls[2], answer())
  assert.equal(tally('a').concurrent, 2)
  assert.equal(tally('a').overflow, 1)
  await clock.advance(60_000)
  await Promise.all(calls)
  assert.equal(tally('a').concurrent, 0)
})

test('a client that leaves frees the place of its call', async () => {
  const { send, arm, tally, clock } = rig()
  arm([fault('a', 'test.hold')])
  const signal = new Cancellation()
  const outcome = send(toolCall('t', {}, { signal }))
  assert.equal(tally('a').concurrent, 1)
  signal.abort(gatewayError('cancelled', 'gone'))
  assert.equal(tally('a').concurrent, 0)
  await outcome
  assert.equal(tally('a').concurrent, 0)
  assert.equal(clock.pending, 1, 'only the ttl is left')
})

test('shadow mode decides, counts and journals, and does nothing', async () => {
  const { send, arm, tally, controller } = rig()
  arm([fault('a', 'test.spoil', { maxInjections: 1 })], { mode: 'shadow' })
  const call = toolCall('t')
  assert.deepEqual(await send(call), answer())
  await send(toolCall('t'))
  assert.equal(injectedFaults.of(call.record)?.[0]?.status, 'shadow')
  assert.equal(tally('a').shadowed, 1)
  assert.equal(tally('a').hits, 0)
  assert.deepEqual(
    controller.journal.decisions().map(({ because }) => because),
    ['shadow', 'max_injections'],
  )
})

test('the gateway’s own requests use up none of a fault’s budget for calls', async () => {
  for (const [more, expected] of [
    [{ when: { onCall: 3 } }, '..x...'],
    [{ when: { everyNth: 2 } }, '.x.x.x'],
    [{ when: { afterCalls: 4 } }, '....xx'],
    [{ maxInjections: 2 }, 'xx....'],
  ] as const) {
    const { send, arm, controller } = rig()
    arm([fault('a', 'test.spoil', more)])
    const own = injector('upstream', controller.engine, 'discovery')(() => Promise.resolve(answer()))
    let hits = ''
    for (let n = 0; n < 6; n++) {
      await own(toolCall('t'))
      const call = toolCall('t')
      await send(call)
      hits += injectedFaults.of(call.record) === undefined ? '.' : 'x'
    }
    assert.equal(hits, expected, JSON.stringify(more))
  }
})
