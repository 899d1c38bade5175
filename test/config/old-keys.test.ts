import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { errorsOf } from './files.ts'

const follows = 'which sets this limit too (see docs/security.md)'
const memory = `set gateway.limits.memory, ${follows}`
const stalled = `set gateway.limits.stalled, ${follows}`
const share = 'set gateway.limits.perClient, such as 0.5: the share of one client in all limits by client'
const fixed = 'this limit is fixed (see docs/security.md)'

for (const [key, instead] of [
  ['sessions.perClient', share],
  ['sessions.replayEvents', fixed],
  ['sessions.replayBytes', fixed],
  ['sessions.replayTotal', memory],
  ['limits.perClient.calls', share],
  ['limits.perClient.callers', share],
  ['limits.perClient.connections', share],
  ['limits.perClient.initializeParams', share],
  ['limits.perClient.listens', share],
  ['limits.perClient.pendingInputs', share],
  ['limits.perClient.answers', share],
  ['limits.perClient.pipelined', share],
  ['limits.bodies.total', memory],
  ['limits.bodies.perAddress', share],
  ['limits.bodies.count', `set gateway.maxInFlight, ${follows}`],
  ['limits.bodies.countPerAddress', share],
  ['limits.bodies.stalled', stalled],
  ['limits.bodies.whole', stalled],
  ['limits.replies.total', memory],
  ['limits.replies.perServer', memory],
  ['unread.total', memory],
  ['unread.perSession', memory],
  ['unread.stalled', stalled],
] as const)
  test(`gateway.${key} is refused at its line, with what to write instead`, async (t) => {
    const keys = key.split('.')
    const lines = keys.map((name, index) => `${'  '.repeat(index + 1)}${name}:`)
    const place = `${keys.length + 1}:${2 * keys.length + 1}`
    deepEqual(await errorsOf(t, `gateway:\n${lines.join('\n')} 1`), [
      `${place}  gateway.${key}  is gone: ${instead}`,
    ])
  })
