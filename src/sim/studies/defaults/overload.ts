import { wentWrong } from '../../../mesh/classify.ts'
import { Cancellation, never } from '../../../mesh/cancel.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { gatewayError } from '../../../mesh/errors.ts'
import { SimulatedGateway } from '../../gateway.ts'
import type { PolicyChoice } from '../../policy-choices.ts'
import { lookup } from '../../scene.ts'
import { VirtualClock } from '../../virtual-clock.ts'

/** Concurrent calls of a server. A call takes 50 to 150 ms, and continues after its caller has left. */
const POOL = 10
const SHORTEST_MS: Millis = 50
const VARIES_MS: Millis = 100

const LENGTH_S = 60

/** An overload: the arrivals of calls, which do not depend on outcomes, and the patience of the agents. */
export interface Overload {
  readonly name: string
  /** Calls per second, as a function of the second. */
  readonly perS: (second: number) => number
  /** Seconds during which the server starts no run. */
  readonly stalls?: readonly [from: number, to: number]
  /** End of the overload's cause, in seconds. */
  readonly overS: number
  /** Timeout of an agent's call, in milliseconds; `tries` bounds the attempts. */
  readonly patienceMs: Millis
  readonly tries: number
  /** Present if another set answers more calls, by more than a point, with the reason. */
  readonly loses?: { readonly why: string }
}

const stalled = { perS: () => 70, stalls: [10, 14], overS: 14 } as const
const crowded = {
  perS: (second: number) => (second >= 10 && second < 40 ? 130 : 50),
  overS: 40,
  loses: {
    why: 'the bulkhead limits its queue, and the overload ends before an unlimited queue would get too long',
  },
}

export const overloads: readonly Overload[] = [
  { name: 'stalls 4 s, agents wait 60 s', ...stalled, patienceMs: 60_000, tries: 1 },
  {
    name: 'stalls 4 s, agents wait 3 times 2 s',
    ...stalled,
    patienceMs: 2_000,
    tries: 3,
  },
  { name: '1.3 times too many, agents wait 60 s', ...crowded, patienceMs: 60_000, tries: 1 },
  {
    name: '1.3 times too many, agents wait 3 times 10 s',
    ...crowded,
    patienceMs: 10_000,
    tries: 3,
  },
]

export interface OverloadMeasured {
  readonly asked: number
  readonly unanswered: number
  /**
   * Seconds after the end of the cause from which at least 95 % of the calls are answered until the end; undefined if
   * never.
   */
  readonly wellAfterS: number | undefined
  readonly attempts: number
}

/** Runs an overload: makes calls at even intervals, each from a new agent. Resolves to the counts. */
export async function runOverload(
  overload: Overload,
  choice: PolicyChoice,
  seed: number,
): Promise<OverloadMeasured> {
  const clock = new VirtualClock()
  const { policies, set } = choice
  const gateway = new SimulatedGateway({
    clock,
    seed,
    policies,
    ...(set !== undefined && { set }),
    servers: {
      server: {
        pool: POOL,
        runsOn: true,
        tools: { read: { ...lookup('read'), tookMs: (_, draw) => SHORTEST_MS + VARIES_MS * draw('run') } },
      },
    },
  })
  const server = gateway.servers.get('server')!
  if (overload.stalls !== undefined) {
    clock.after(overload.stalls[0] * 1_000, () => server.resize(0))
    clock.after(overload.stalls[1] * 1_000, () => server.resize(POOL))
  }
  await clock.run(gateway.prepare())
  const [asked, answered] = [new Array<number>(LENGTH_S).fill(0), new Array<number>(LENGTH_S).fill(0)]
  let attempts = 0

  async function work(agent: number): Promise<void> {
    const second = Math.floor(clock.now() / 1_000)
    asked[second]!++
    for (let tries = 0; tries < overload.tries; tries++) {
      const signal = new Cancellation()
      const cancel = clock.after(overload.patienceMs, () =>
        signal.abort(gatewayError('cancelled', 'the agent gave up', { sent: true })),
      )
      const args = { service: `service-${agent}` }
      const { call, outcome: ended } = gateway.begin({
        server: 'server',
        tool: 'read',
        args,
        intent: `${agent}`,
        signal,
      })
      const outcome = await ended
      cancel()
      attempts += call.record.attempts
      if (outcome.kind === 'answered' && !wentWrong(outcome, call.record)) return void answered[second]!++
      await clock.sleep(PAUSE_MS, never)
    }
  }

  const all: Promise<void>[] = []
  let agent = 0
  for (let second = 0; second < LENGTH_S; second++)
    for (let nth = 0; nth < overload.perS(second); nth++) {
      const at = (second + nth / overload.perS(second)) * 1_000
      all.push(clock.sleep(at - clock.now(), never).then(() => work(agent++)))
    }
  await clock.run(Promise.all(all))
  const isWell = (second: number) => answered[second]! >= 0.95 * asked[second]!
  let wellAt = LENGTH_S
  while (wellAt > 0 && isWell(wellAt - 1)) wellAt--
  return {
    asked: sum(asked),
    unanswered: sum(asked) - sum(answered),
    wellAfterS: wellAt === LENGTH_S ? undefined : Math.max(0, wellAt - overload.overS),
    attempts,
  }
}

/** Pause between two tries of an agent, in milliseconds. */
const PAUSE_MS: Millis = 200

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)
