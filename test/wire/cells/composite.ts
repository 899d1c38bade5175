import assert from 'node:assert/strict'
import type { Seen, Stage } from '../support/stage.ts'
import { answered, atLeast, failed, type Entries } from './entry.ts'

const DELAY_MS = 400

/** Two concurrent calls of a tool that answers neither before both have arrived, if both can arrive. */
async function pair(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  const calls = [agent.call('pair'), agent.call('pair')]
  await Promise.all(calls.map(({ over }) => over))
}

/** The server got the second call only after answering the first. */
function oneByOne(seen: Seen): void {
  assert.equal(seen.calls.length, 2)
  answered(seen.exchange(0))
  answered(seen.exchange(1))
  assert.ok(seen.calls[1]!.at > seen.gave('tools/call')[0]!.at)
}

/** Faults across several calls. */
export const compositeEntries: Entries = {
  'hol.block': {
    fault: { hold: DELAY_MS },
    play: pair,
    saw(seen) {
      oneByOne(seen)
      atLeast(DELAY_MS, seen.exchange(0).sentAt, seen.calls[0]!.at)
      return `the first of two calls comes ${DELAY_MS} ms later, and the second one behind its answer`
    },
  },
  'fanout.amplify': {
    fault: { factor: 3, allowWrites: false },
    saw(seen) {
      assert.equal(seen.calls.length, 3)
      assert.equal(new Set(seen.calls.map(({ message }) => message.id)).size, 3)
      answered(seen.exchange())
      return 'three calls at the server, one answer'
    },
  },
  'retry.storm': {
    fault: { failures: 2, sticky: true },
    async play(stage) {
      const agent = await stage.agent()
      await agent.call('again').over
      await agent.call('echo').over
    },
    saw(seen) {
      answered(seen.exchange(0))
      assert.equal(seen.calls.length, 1)
      const reason = seen.place.transport === 'stdio' ? 'upstream_unavailable' : 'upstream_status'
      failed(seen.exchange(1), reason)
      return `of three attempts the server gets the third; who does not retry: ${reason}`
    },
  },
  'pool.exhaust': {
    fault: { slots: 1 },
    play: pair,
    saw(seen) {
      oneByOne(seen)
      return 'the second of two calls comes behind the answer to the first'
    },
  },
  cold_start: {
    fault: { delay: DELAY_MS },
    saw(seen) {
      answered(seen.exchange())
      atLeast(DELAY_MS, seen.exchange().sentAt, seen.calls[0]?.at)
      return `the first call comes ${DELAY_MS} ms later`
    },
  },
}
