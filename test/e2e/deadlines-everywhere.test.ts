import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { until } from '../support/until.ts'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingServer, type Era } from './support/counting.ts'
import { cleanUp, Gateway } from './support/gateway.ts'
import { Noise } from './support/noise.ts'

/** Where a server hangs, and how far agent and gateway had come with it. */
interface Case {
  readonly name: string
  readonly era: Era
  readonly hang: string
  /**
   * `used`: a conversation has worked. `fresh`: the server is up, but the agent has not called yet. `lost`: the server
   * has forgotten the conversation. `boot`: the server hangs before the gateway knows it.
   */
  readonly when: 'used' | 'fresh' | 'lost' | 'boot'
  /** Replaces every second call by a list of tools. */
  readonly lists: boolean
  /** A failure mode of the calls: a reply that makes the gateway check the session. */
  readonly mode?: string
}

const of = (era: Era, when: Case['when'], ...points: string[]): Case[] =>
  points.map((hang) => {
    const name = `${era}-${when}-${hang.replace(/^.*\//, '')}`
    return { name, era, hang, when, lists: when === 'boot' || hang === 'tools/list' }
  })

const cases: readonly Case[] = [
  ...of('legacy', 'used', 'accept', 'tools/call', 'body', 'sse', 'tools/list'),
  ...of('legacy', 'fresh', 'accept', 'initialize', 'notifications/initialized', 'GET'),
  ...of('legacy', 'lost', 'accept', 'initialize', 'notifications/initialized', 'GET', 'ping'),
  ...of('legacy', 'used', 'ping').map((one) => ({ ...one, mode: 'status_404_after' })),
  ...of('legacy', 'boot', 'accept', 'initialize', 'notifications/initialized', 'GET', 'tools/list'),
  ...of('modern', 'used', 'accept', 'tools/call', 'body', 'sse'),
  ...of('modern', 'fresh', 'accept', 'server/discover'),
  ...of('modern', 'boot', 'accept', 'server/discover', 'tools/list'),
]

const CALLS = 1_500
const AT_ONCE = 50
/** Agents of each era per server. */
const AGENTS = 2
/** Overdue time after which the test stops waiting for a call, in milliseconds. */
const GIVEN_UP_MS = 3_000
/** Time for all calls, in milliseconds: four times the need when all deadlines hold. */
const BUDGET_MS = 50_000
const ALLOWED_MS = 50
/** Noise is sampled call by call, so a pause between two samples stays unseen. */
const UNSEEN_PAUSES = CALLS / 200
const LONGEST_PAUSE_MS = 500
/** A call passes more steps than a sample, so its delay may be a multiple. */
const LONGER = 2

after(cleanUp)

interface Ended {
  readonly what: string
  readonly startedAt: number
  readonly endedAt: number
  readonly deadlineMs: number
  readonly told: Told
}

interface Caller {
  readonly one: Case
  readonly agent: Agent
  /** The prefix of tool names. */
  readonly prefix: string
}

test(`${CALLS} calls with deadlines end in time, wherever their server hangs, and leave nothing behind`, async (t) => {
  const { gateway, hangAll, hangNone } = await stage()
  const control = await Agent.open('legacy', gateway.mcp('control'))
  const callers = await callersOf(gateway)
  await hangAll()
  const noise = new Noise(() => control.call('read', { token: 'control' }))

  const calls = await callAll(callers)
  const stuck = await stuckIn(gateway)
  const cancels = await cancelAll(callers)
  const stuckAfterCancel = await stuckIn(gateway)
  await noise.stop()
  await hangNone()
  const healthy = await healthyAgain(gateway, callers)

  const late = [...calls, ...cancels].filter(
    (call) => latenessOf(call) > ALLOWED_MS + LONGER * noiseOf(call, noise),
  )
  const longestPauseMs = Math.max(LONGEST_PAUSE_MS, LONGER * noise.quantile(1))
  const arePauses = late.length <= UNSEEN_PAUSES && late.every((call) => latenessOf(call) < longestPauseMs)
  const lateness = calls.map(latenessOf).sort((a, b) => a - b)
  t.diagnostic(
    `${calls.length} calls; lateness p50 ${at(lateness, 0.5)}, p99 ${at(lateness, 0.99)}, max ${at(lateness, 1)} ms; ` +
      `noise p50 ${noise.quantile(0.5).toFixed()}, p99 ${noise.quantile(0.99).toFixed()}, max ${noise.quantile(1).toFixed()} ms; ` +
      `${late.length} late`,
  )
  t.diagnostic(`ends: ${JSON.stringify(talliesOf(calls.map(({ told }) => told)))}`)
  assert.deepEqual(
    {
      calls: calls.length,
      late: arePauses ? {} : summaryOf(late),
      full: calls.filter(({ told }) => told.kind === 'error' && told.reason === 'bulkhead_full').length,
      stuck,
      stuckAfterCancel,
      healthy,
    },
    { calls: CALLS, late: {}, full: 0, stuck: {}, stuckAfterCancel: {}, healthy: [] },
  )
})

async function everyCase(
  fits: (one: Case) => boolean,
  task: (one: Case, index: number) => Promise<void>,
): Promise<void> {
  await Promise.all(cases.map(async (one, index) => fits(one) && task(one, index)))
}

async function stage() {
  const servers = {
    legacy: await CountingServer.start('legacy', cases.length + 1),
    modern: await CountingServer.start('modern', cases.length),
  }
  const hang = async (fits: (one: Case) => boolean, on: boolean) => {
    await everyCase(fits, (one, index) => servers[one.era].hang(index, on ? [one.hang] : []))
  }
  await hang(({ when }) => when === 'boot', true)
  const entry = ({ era, name }: Case, index: number) =>
    [name, { url: servers[era].urls[index], era, trusted: true }] as const
  const gateway = await Gateway.start({
    servers: {
      ...Object.fromEntries(cases.map(entry)),
      control: { url: servers.legacy.urls[cases.length], era: 'legacy' },
    },
    // Breakers would keep most calls from ever hanging.
    policies: { defaults: { breaker: false } },
  })
  const up = cases.flatMap(({ when, name }) => (when === 'boot' ? [] : [name]))
  await gateway.waitFor('up', 'control', ...up)
  return {
    gateway,
    async hangAll() {
      await hang(({ when }) => when !== 'boot', true)
      await everyCase(
        ({ when }) => when === 'lost',
        (one, index) => servers[one.era].tell(index, 'forget'),
      )
    },
    hangNone: () => hang(() => true, false),
  }
}

/** Opens agents of both eras at every server; legacy agents listen as well. */
async function callersOf(gateway: Gateway): Promise<Caller[]> {
  const callers: Caller[] = []
  for (const one of cases)
    for (const era of ['legacy', 'modern'] as const)
      for (let nth = 0; nth < AGENTS; nth++) {
        // A session on a server's own endpoint opens the conversation with the server.
        const isAll = one.when === 'fresh' || one.when === 'boot' || nth % 2 === 1
        const agent = await Agent.open(era, gateway.mcp(isAll ? undefined : one.name))
        const prefix = isAll ? `${one.name}__` : ''
        if (one.when === 'used' || one.when === 'lost')
          assert.equal((await agent.call(`${prefix}write`, { token: 'first' })).kind, 'result', one.name)
        await agent.session?.listen()
        callers.push({ one, agent, prefix })
      }
  return callers
}

async function callAll(callers: readonly Caller[]): Promise<Ended[]> {
  const calls: Ended[] = []
  const giveUpAt = performance.now() + BUDGET_MS
  let next = 0
  const worker = async () => {
    while (next < CALLS && performance.now() < giveUpAt) {
      const nth = next++
      const { one, agent, prefix } = callers[nth % callers.length] as Caller
      const deadlineMs = 200 + ((nth * 37) % 301)
      const headers = { 'x-breakwater-deadline-ms': String(deadlineMs) }
      const options = { headers, patienceMs: deadlineMs + GIVEN_UP_MS }
      const startedAt = performance.now()
      const told =
        one.lists && Math.floor(nth / callers.length) % 2 === 1
          ? await agent.ask('tools/list', {}, options)
          : await agent.call(`${prefix}write`, { token: `call-${nth}`, mode: one.mode }, options)
      const what = `${one.name}, ${agent.era} agent`
      calls.push({ what, startedAt, endedAt: performance.now(), deadlineMs, told })
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  return calls
}

const CANCEL_AFTER_MS = 150

/** Starts a call without a deadline in each session, and cancels it while it hangs: it should end at once. */
async function cancelAll(callers: readonly Caller[]): Promise<Ended[]> {
  return Promise.all(
    callers
      .filter(({ agent, one }) => agent.era === 'legacy' && one.when !== 'boot')
      .flatMap(({ one, agent, prefix }) => {
        const told = agent.call(
          `${prefix}write`,
          { token: 'cancel' },
          { id: 'cancel', patienceMs: GIVEN_UP_MS },
        )
        const startedAt = performance.now()
        const ended = (what: string) => (end: Told) => ({
          what: `${what}, ${one.name}`,
          startedAt,
          endedAt: performance.now(),
          deadlineMs: CANCEL_AFTER_MS,
          told: end,
        })
        const answer = setTimeout(CANCEL_AFTER_MS)
          .then(() => agent.cancel('cancel'))
          .then((): Told => ({ kind: 'result' }))
        return [told.then(ended('cancelled call')), answer.then(ended('cancel itself'))]
      }),
  )
}

/** Returns calls still under way after every call has ended, by server. */
async function stuckIn(gateway: Gateway): Promise<Record<string, number>> {
  const underWay = async () => {
    const sums = await gateway.sums('breakwater_inflight', 'server', '')
    // The control server is called all the time.
    delete sums.control
    return sums
  }
  await until('no call is under way', async () => Object.keys(await underWay()).length === 0, 1_000).catch(
    () => undefined,
  )
  return underWay()
}

/** Checks that every agent's next call works once no server hangs; servers that were never up get some time. */
async function healthyAgain(gateway: Gateway, callers: readonly Caller[]): Promise<string[]> {
  const headers = { 'x-breakwater-deadline-ms': '5000' }
  const told = await Promise.all(
    callers
      .filter(({ one }) => one.when !== 'boot')
      .map(async ({ one, agent, prefix }) => {
        const [end] = [await agent.call(`${prefix}write`, { token: 'healthy' }, { headers })]
        return end.kind === 'result'
          ? []
          : [`${one.name}, ${agent.era} agent: ${Object.keys(talliesOf([end])).join()}`]
      }),
  )
  const booted = await Promise.all(
    cases
      .filter(({ when }) => when === 'boot')
      .map(({ name }) =>
        gateway.waitFor('up', name).then(
          () => [],
          () => [`${name} is not up`],
        ),
      ),
  )
  return [...told, ...booted].flat()
}

const latenessOf = ({ startedAt, endedAt, deadlineMs }: Ended): number => endedAt - startedAt - deadlineMs

/** Returns the general delay around the end of a call. */
function noiseOf({ startedAt, endedAt, deadlineMs }: Ended, noise: Noise): number {
  const dueAt = startedAt + deadlineMs
  // The beginning of the call may have been delayed too.
  return noise.between(dueAt, endedAt) + noise.between(startedAt, startedAt + ALLOWED_MS)
}

function summaryOf(late: readonly Ended[]): Record<string, string> {
  const groups = new Map<string, Ended[]>()
  for (const call of late) groups.set(call.what, [...(groups.get(call.what) ?? []), call])
  return Object.fromEntries(
    [...groups].map(([what, calls]) => {
      const worst = Math.max(...calls.map(latenessOf)).toFixed()
      return [
        what,
        `${calls.length}, by up to ${worst} ms, ${JSON.stringify(talliesOf(calls.map(({ told }) => told)))}`,
      ]
    }),
  )
}

const at = (sorted: readonly number[], q: number): string =>
  (sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0).toFixed()
