import assert from 'node:assert/strict'
import { test } from 'node:test'
import { slopeOf } from './footprint.ts'
import { AccessLines, type Sending, settle } from './ledger.ts'

const write: Sending = { id: 'w#1', token: 'w', tool: 'write', hasKey: false }

/** Settles one run: sends, tokens that ran, and a result in the access log for each id. */
function settled(sendings: readonly Sending[], ran: readonly string[], logged: Record<string, string>) {
  const runs = new Map<string, number>()
  for (const token of ran) runs.set(token, (runs.get(token) ?? 0) + 1)
  const access = new AccessLines()
  const counts: Record<string, number> = {}
  for (const [intent, result] of Object.entries(logged)) {
    access.add(JSON.stringify({ level: 30, msg: 'call', method: 'tools/call', intent, result }))
    counts[result] = (counts[result] ?? 0) + 1
  }
  const { unaccounted, writesTwice } = settle(sendings, runs, { lines: access.lines, counts })
  return { unaccounted, writesTwice }
}

test('calls are accounted for when agents, servers and the gateway agree', () => {
  const sendings: Sending[] = [
    { ...write, told: 'answered' },
    { id: 'x#1', token: 'x', tool: 'write', hasKey: false, told: 'rejected' },
    { id: 'y#1', token: 'y', tool: 'read', hasKey: false, told: 'failed' },
    { id: 'z#1', token: 'z', tool: 'report', hasKey: false, told: 'vanished' },
  ]
  const logged = { 'w#1': 'returned', 'y#1': 'timeout' }
  assert.deepEqual(settled(sendings, ['w', 'y', 'y'], logged), { unaccounted: [], writesTwice: [] })
})

test('the account names each kind of contradiction', () => {
  const cases: readonly (readonly [Sending, string[], Record<string, string>, RegExp])[] = [
    [{ ...write }, [], {}, /no response/],
    [{ ...write, told: 'answered' }, [], { 'w#1': 'returned' }, /answered, and has not run/],
    [{ ...write, told: 'answered' }, ['w'], {}, /answered, and in the log/],
    [{ ...write, told: 'rejected' }, ['w'], {}, /not sent, they say, and has run/],
    [{ ...write, told: 'failed' }, [], {}, /failed, and not in the log/],
    [{ ...write, told: 'failed' }, ['w'], { 'w#1': 'returned' }, /failed, and in the log: returned/],
    [{ ...write, told: 'vanished' }, ['other'], {}, /nobody sent it/],
  ]
  for (const [sending, ran, logged, expected] of cases)
    assert.match(settled([sending], ran, logged).unaccounted.join(), expected)
})

test('a write may run as often as it was sent without a key, and once with one', () => {
  const logged = { 'w#1': 'transport_error', 'w#2': 'returned' }
  const sent = (hasKey: boolean): Sending[] => [
    { ...write, hasKey, told: 'failed' },
    { ...write, hasKey, id: 'w#2', told: 'answered' },
  ]
  assert.deepEqual(settled(sent(false), ['w', 'w'], logged).writesTwice, [])
  assert.deepEqual(settled(sent(false), ['w', 'w', 'w'], logged).writesTwice, ['w: ran 3 times, for 2'])
  assert.deepEqual(settled(sent(true), ['w', 'w'], logged).writesTwice, ['w: ran 2 times, for 1'])
})

test('a slope has an interval that holds 0 when there is only noise', () => {
  const noise = [3, -2, 1, -3, 2, 0, -1, 2, -2, 0]
  const flat = slopeOf(noise.map((y, x) => [x, 100 + y]))
  assert.ok(flat.low < 0 && flat.high > 0)
  const rising = slopeOf(noise.map((y, x) => [x, 100 + 5 * x + y]))
  assert.ok(rising.low > 3 && rising.high < 7)
})
