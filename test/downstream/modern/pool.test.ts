import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CallerPool, type PooledCaller } from '../../../src/downstream/modern/pool.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { message } from './test-modern.ts'

const MAX = 256
const IDLE_MS = 10 * 60_000

function pool() {
  const clock = new ManualClock()
  const dropped: PooledCaller[] = []
  const callers = new CallerPool(clock, (caller) => dropped.push(caller))
  return { clock, dropped, callers, of: (name: string) => callers.of({ name }, {}, {}) }
}

test('clients that are alike share a caller', () => {
  const { callers } = pool()
  const first = callers.of({ name: 'a' }, { roots: {} }, { authorization: 'x' })
  assert.equal(callers.of({ name: 'a' }, { roots: {} }, { authorization: 'x' }), first)
  assert.equal(callers.size, 1)
})

test('other capabilities, another name or other credentials make another caller', () => {
  const { callers } = pool()
  callers.of({ name: 'a' }, {}, {})
  callers.of({ name: 'b' }, {}, {})
  callers.of({ name: 'a' }, { roots: {} }, {})
  callers.of({ name: 'a' }, {}, { authorization: 'x' })
  callers.of({ name: 'a' }, {}, { authorization: 'y' })
  callers.of({ name: 'a' }, {}, {}, 'principal')
  assert.equal(callers.size, 6)
})

test('clients that say very much of themselves are told apart as well', () => {
  const { callers } = pool()
  const long = 'x'.repeat(10_000)
  const first = callers.of({ name: `${long}1` }, {}, {})
  assert.notEqual(callers.of({ name: `${long}2` }, {}, {}), first)
  assert.equal(callers.of({ name: `${long}1` }, {}, {}), first)
})

test('a caller says hello as its clients would, and by our name for clients that have none', () => {
  const { callers } = pool()
  assert.deepEqual(callers.of({ name: 'a' }, { roots: {} }, {}).hello, {
    protocolVersion: '2025-11-25',
    capabilities: { roots: {} },
    clientInfo: { name: 'a' },
  })
  const { clientInfo } = callers.of(undefined, {}, {}).hello as { clientInfo: { name: string } }
  assert.equal(clientInfo.name, 'breakwater')
})

test('no id is given out twice', () => {
  const caller = pool().of('a')
  assert.notEqual(caller.mintId(), caller.mintId())
})

test('the caller unused for longest makes room', async () => {
  const { clock, dropped, of } = pool()
  const first = of('0')
  const second = of('1')
  for (let i = 2; i < MAX; i++) of(String(i))
  await clock.advance(2_000)
  of('0')
  of('new')
  assert.deepEqual(dropped, [second])
  assert.equal(of('0'), first)
})

test('an idle caller is dropped when another one comes', async () => {
  const { clock, dropped, callers, of } = pool()
  const idle = of('a')
  await clock.advance(IDLE_MS + 1)
  of('b')
  assert.deepEqual(dropped, [idle])
  assert.equal(callers.size, 1)
})

test('a caller with a call under way, or with somebody who listens, is neither idle nor in the way', async () => {
  const { clock, dropped, of } = pool()
  const calling = of('calling')
  calling.calls = 1
  const listening = of('listening')
  listening.listeners.add(() => undefined)
  const idle = of('idle')
  await clock.advance(IDLE_MS + 1)
  for (let i = 0; i < MAX - 2; i++) of(String(i))
  assert.deepEqual(dropped, [idle])
  await clock.advance(2_000)
  of('one more')
  assert.equal(dropped.length, 2)
  assert.ok(!dropped.includes(calling) && !dropped.includes(listening))
})

test('busy callers make room when there is no other', () => {
  const { dropped, callers, of } = pool()
  for (let i = 0; i < MAX; i++) of(String(i)).calls = 1
  of('one more')
  assert.equal(dropped.length, 1)
  assert.equal(callers.size, MAX)
})

test('closing the pool drops all', () => {
  const { dropped, callers, of } = pool()
  of('a')
  of('b')
  callers.closeAll()
  assert.equal(dropped.length, 2)
  assert.equal(callers.size, 0)
})

test('what a server sends outside of calls goes to all who listen', () => {
  const caller = pool().of('a')
  const heard: unknown[] = []
  caller.listeners.add((server, { value }) => heard.push([server, value.method]))
  caller.listeners.add((server) => heard.push(server))
  caller.receive('s', message({ method: 'm' }))
  assert.deepEqual(heard, [['s', 'm'], 's'])
})

test('a server that asks outside of a call hears that nobody is there, and its ping is answered', () => {
  const caller = pool().of('a')
  const answers: unknown[] = []
  const answer = (text: string) => {
    answers.push(JSON.parse(text))
    return Promise.resolve()
  }
  caller.receive('s', message({ id: 1, method: 'roots/list' }), answer)
  caller.receive('s', message({ id: 2, method: 'ping' }), answer)
  assert.equal((answers[0] as { error: { code: number } }).error.code, -32601)
  assert.deepEqual((answers[1] as { result: object }).result, {})
})
