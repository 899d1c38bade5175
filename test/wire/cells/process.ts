import assert from 'node:assert/strict'
import { until } from '../../support/until.ts'
import type { Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'
import { answered, atLeast, calling, failed, ranOnce, type Entries } from './entry.ts'

const PAUSE_MS = 1_000

/** How long a process of a crash loop lives, in milliseconds: long enough to be seen. */
const LIFE_MS = 1_000

/** Plays a call; without an answer, waits for another process. */
async function broken(stage: Stage): Promise<Exchange> {
  const agent = await stage.agent()
  const call = agent.call('pair')
  await call.over
  if (call.result === undefined) await until('a new process', () => stage.server.connections.length > 0)
  return call
}

/** Returns the number of crashes the gateway has seen and backs off from. */
const crashesOf = ({ gateway, server }: Stage): number =>
  gateway.log.filter((line) => line.server === server.name && line.retryAfterMs !== undefined).length

/** Returns the log lines about the server's output outside messages. */
const noiseOf = ({ gateway, server }: Stage): number =>
  gateway.log.filter((line) => line.server === server.name && String(line.excerpt).startsWith('xx')).length

/** Faults of a server's process and its output. */
export const processEntries: Entries = {
  'proc.kill': {
    fault: { maxInjections: 1 },
    async play(stage) {
      await broken(stage)
      await stage.gateway.waitFor('up', stage.server.name)
      await stage.agents[0]!.call('echo').over
    },
    saw(seen) {
      assert.deepEqual(seen.ended, ['SIGTERM'])
      failed(seen.exchange(0), 'upstream_disconnected', true)
      answered(seen.exchange(1))
      assert.equal(seen.connections.length, 1)
      assert.equal(seen.calls.at(-1)!.connection, seen.connections[0])
      return 'SIGTERM; the agent: upstream_disconnected; a new process gets the next call'
    },
  },
  'proc.pause': {
    fault: { match: { method: 'tools/call', tool: 'echo' }, for: PAUSE_MS },
    async play(stage) {
      const agent = await stage.agent()
      const first = agent.call('echo')
      const isHit = async () => (await stage.journal('proc.pause')) !== undefined
      await until('the process stands still', async () => first.end !== 'open' || (await isHit()))
      const second = agent.call('other')
      await Promise.all([first.over, second.over])
    },
    saw(seen) {
      assert.equal(seen.calls.length, 2)
      for (const at of [0, 1]) {
        answered(seen.exchange(at))
        atLeast(PAUSE_MS, seen.exchange(0).sentAt, seen.calls[at]!.at)
      }
      assert.ok(seen.exchange(1).sentAt < seen.calls[0]!.at, 'the second call was not sent meanwhile')
      assert.deepEqual(seen.ended, [])
      return `for ${PAUSE_MS} ms the process reads nothing, a call that is not hit neither; then it answers all`
    },
  },
  'proc.crash_loop': {
    fault: { for: '10m', after: LIFE_MS },
    async play(stage) {
      const before = crashesOf(stage)
      const call = await broken(stage)
      // The gateway may notice the end later than the relay's peer.
      if (call.result === undefined)
        await until(
          'the second process ends as well, and the gateway knows',
          () => stage.server.ended.length > 1 && crashesOf(stage) - before > 1,
        )
      await stage.agents[0]!.call('echo').over
    },
    saw(seen) {
      assert.deepEqual(seen.ended, ['gone', 'gone'])
      failed(seen.exchange(0), 'upstream_disconnected', true)
      failed(seen.exchange(1), 'upstream_unavailable', false)
      assert.ok(Number(seen.exchange(1).error?.data?.retryAfterMs) > 0)
      return 'SIGKILL, and again for the new process; the agent: upstream_disconnected, then upstream_unavailable and when to retry'
    },
  },
  'stdout.pollution': {
    fault: { kind: 'half' },
    play: calling('brief'),
    saw(seen) {
      ranOnce(seen)
      failed(seen.exchange(), 'attempt_timeout', true)
      return 'the server answers; its answer stands behind other words in one line, and the agent gets attempt_timeout'
    },
  },
  'stdout.flood': {
    fault: { for: '1s' },
    async play(stage) {
      const before = noiseOf(stage)
      const agent = await stage.agent()
      await agent.call('echo').over
      const isHit = (await stage.journal('stdout.flood')) !== undefined
      await until('the log reports the output, or nothing has come', () => !isHit || noiseOf(stage) > before)
      stage.marks.set('noise', noiseOf(stage) - before)
    },
    saw(seen) {
      ranOnce(seen)
      answered(seen.exchange())
      assert.ok(Number(seen.marks.get('noise')) > 0)
      return 'the answer all the same; the log shows lines that the server did not print'
    },
  },
}
