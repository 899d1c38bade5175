import { z } from 'zod'
import type { ControllerParts } from '../../src/chaos/control/controller-parts.ts'
import { Controller } from '../../src/chaos/control/controller.ts'
import type { ChaosEvent } from '../../src/chaos/events.ts'
import { type FaultType, resultIn, type FaultEnvironment } from '../../src/chaos/fault.ts'
import { compositeFaults } from '../../src/chaos/faults/composite.ts'
import type { FaultRegistry } from '../../src/chaos/faults/index.ts'
import { injector } from '../../src/chaos/firing/engine.ts'
import type { Fault } from '../../src/chaos/plan/common.ts'
import { chaosSchema } from '../../src/chaos/plan/schema.ts'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { duration } from '../../src/units/duration.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** The catalogue's texts for a fault type. */
const described = {
  family: 'connection',
  use: 'In tests.',
  seen: 'Whatever the test expects.',
  containedBy: { policies: [], how: 'Nothing is there to contain it.' },
  sides: ['upstream', 'client'],
  example: { name: 'example', rate: 1, ttl: '10m' },
} as const

const hold: FaultType<{ holdFor: number }> = {
  schema: z.strictObject({ holdFor: duration().default(60_000) }),
  ...described,
  about: 'Holds a call back.',
  methods: ['tools/call', 'tools/list'],
  layer:
    ({ holdFor }, injection) =>
    (next) =>
    (call) =>
      injection.pause(holdFor, call).then((how) => {
        injection.note({ how })
        return next(call)
      }),
}

const spoil: FaultType<{ to: string }> = {
  schema: z.strictObject({ to: z.string().default('spoiled') }),
  ...described,
  about: 'Changes a result.',
  layer:
    ({ to }, injection) =>
    (next) =>
    (call) =>
      next(call).then((outcome) =>
        injection.change(outcome, { ...resultIn(outcome), structuredContent: { was: to } }),
      ),
}

const fail: FaultType<{ code: number }> = {
  schema: z.strictObject({ code: z.int().default(-32603) }),
  about: 'Answers with an error in place of the server.',
  ...described,
  sides: ['upstream'],
  layer: (_, injection) => () => (call) =>
    Promise.resolve(injection.disconnect(call, 'the connection was reset')),
}

const reply: FaultType<{ status: number }> = {
  schema: z.strictObject({ status: z.int().default(503) }),
  ...described,
  about: 'Answers with a status.',
  transports: { only: ['http', 'sse'], otherwise: 'there is no HTTP' },
  layer:
    ({ status }, injection) =>
    () =>
    (call) =>
      Promise.resolve(injection.reply(call, { status, headers: { 'retry-after': '1' }, body: 'busy' })),
}

const defect: FaultType<{ at: 'build' | 'before' | 'after' | 'reject' | 'nothing' }> = {
  schema: z.strictObject({ at: z.enum(['build', 'before', 'after', 'reject', 'nothing']).default('before') }),
  ...described,
  about: 'Breaks in a way of its own.',
  layer({ at }) {
    if (at === 'build') throw new Error('broken')
    return (next) => (call) => {
      if (at === 'before') throw new Error('broken')
      if (at === 'nothing') return next(call).then(() => JSON.parse('null') as Outcome)
      if (at === 'reject') return Promise.reject(new Error('broken'))
      return next(call).then(() => Promise.reject(new Error('broken')))
    }
  },
}

/** One simple fault of each sort. */
export const registry: FaultRegistry = {
  'test.hold': hold,
  'test.spoil': spoil,
  'test.withheld': { ...spoil, withholds: true },
  'test.fail': fail,
  'test.reply': reply,
  'test.defect': defect,
  'hol.block': compositeFaults['hol.block'],
}

export const schema = chaosSchema(registry)

export const faultEnvironment: FaultEnvironment = {
  kindOf: ({ server }) => ({ transport: server.startsWith('pipe') ? 'stdio' : 'http', era: undefined }),
  outputSchemaOf: () => undefined,
  signal: () => false,
  crash: () => undefined,
  write: () => undefined,
  loseSession: () => false,
  tell: () => undefined,
  refresh: () => undefined,
  beginAttempt: ({ record }, sent) => {
    record.attempts++
    record.sent ||= sent
    return true
  },
  suspect: () => undefined,
  unreachable: () => gatewayError('upstream_unavailable', 'cannot connect (ECONNREFUSED)'),
  failToConnect: () => undefined,
  sendTo: () => undefined,
  read: (_, { status }) => ({
    kind: 'failed',
    error: gatewayError('upstream_status', `status ${status}`, { sent: true }),
  }),
}

export function answer(
  result: Readonly<Record<string, unknown>> = { structuredContent: { was: 'original' } },
): Outcome {
  const value = { jsonrpc: '2.0', id: 1, result }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status: 200 },
    verdict: 'unchecked',
  }
}

/** A controller with the simple faults, and calls through both of its layers. */
export function rig(parts: Partial<ControllerParts> & { server?: Service } = {}) {
  const clock = new ManualClock()
  const events: ChaosEvent[] = []
  const controller = new Controller({
    clock,
    faultEnvironment,
    registry,
    environment: 'test',
    variables: {},
    effectOf: () => 'read_only',
    emit: (event) => void events.push(event),
    ...parts,
  })
  let served = 0
  const server: Service = (call) => {
    served++
    return (parts.server ?? (() => Promise.resolve(answer())))(call)
  }
  const upstream = injector('upstream', controller.engine)(server)
  const send = injector('client', controller.engine)(upstream)
  const account = (call: Call, outcome: Outcome) => controller.engine.account(call, outcome)
  return {
    clock,
    events,
    controller,
    upstream,
    send,
    account,
    get served() {
      return served
    },
    /** Applies a config: first as at boot, later as reloads. */
    apply: (config: unknown) => controller.apply(schema.parse(config)),
    /** Boots with a plan and arms the faults. */
    arm(faults: readonly object[], more: object = {}) {
      controller.apply(schema.parse({ enabled: true, faults, ...more }))
      return controller.arm('me', 'a test')
    },
    tally: (name: string) => controller.status().faults.find((fault) => fault.name === name)!,
    typesOf: () => events.map(({ type }) => type),
  }
}

export const parsedFault = (entry: object): Fault => schema.parse({ faults: [entry] }).faults[0]!

/** A fault that always hits, for an hour. */
export const fault = (name: string, type: string, more: object = {}) => ({
  name,
  type,
  rate: 1,
  ttl: '1h',
  ...more,
})
