import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Links } from '../../src/registry/links.ts'
import { TestCaller } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'

function setUp() {
  const clock = new ManualClock()
  const first = new ScriptedUpstream()
  return { clock, first, links: new Links({ replicas: [first], clock, timeoutMs: 1_000 }) }
}

/** Something that is waited for until a test says so. */
function gate(): { promise: Promise<void>; open: () => void } {
  let open = () => {}
  const promise = new Promise<void>((resolve) => (open = resolve))
  return { promise, open }
}

test('a conversation that ends is forgotten, and the next call begins another', async () => {
  const { first, links } = setUp()
  const caller = new TestCaller()
  const { link } = await links.of(caller)
  first.link.end()
  assert.equal(links.current(caller), undefined)
  assert.notEqual((await links.of(caller)).link, link)
})

test('the end of an old conversation does not touch the new one', async () => {
  const { links, first } = setUp()
  const caller = new TestCaller()
  await links.of(caller)
  const old = first.link
  await links.drop(caller)
  const { link } = await links.of(caller)
  old.end()
  assert.equal(links.current(caller)?.link, link)
})

test('a conversation that is dropped is closed, once', async () => {
  const { first, links } = setUp()
  const caller = new TestCaller()
  await links.of(caller)
  await Promise.all([links.drop(caller), links.drop(caller)])
  await links.drop(caller)
  assert.equal(first.link.closes, 1)
  assert.equal(links.size, 0)
})

test('a conversation that is dropped while it opens is closed as soon as it is open', async () => {
  const { clock, first, links } = setUp()
  const caller = new TestCaller()
  const hold = gate()
  first.gate = hold.promise
  const opening = links.of(caller)
  const dropped = links.drop(caller)
  hold.open()
  await Promise.allSettled([opening, dropped])
  await clock.advance(0)
  assert.equal(links.current(caller), undefined)
  assert.ok(first.links.every((link) => link.ended.aborted))
})

test('to drop nobody waits for a handshake that hangs', async () => {
  const { clock, first, links } = setUp()
  const caller = new TestCaller()
  first.gate = new Promise(() => {})
  const opening = assert.rejects(links.of(caller), { reason: 'cancelled' })
  await links.drop(caller)
  await opening
  assert.equal(clock.pending, 0)
})

test('all conversations can be ended at once, also those that are opening', async () => {
  const { first, links } = setUp()
  const caller = new TestCaller()
  await links.of(new TestCaller())
  const hold = gate()
  first.gate = hold.promise
  const opening = links.of(caller).catch(() => undefined)
  const closed = links.closeAll()
  hold.open()
  await Promise.all([opening, closed])
  assert.equal(links.size, 0)
  assert.ok(first.links.every((link) => link.ended.aborted))
})
