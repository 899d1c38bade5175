import type { TestContext } from 'node:test'
import type { Call, Outcome } from '../../../src/mesh/call.ts'
import { compileMesh } from '../../../src/mesh/compile.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import type { PolicySettings } from '../../../src/mesh/settings.ts'
import { policies } from '../../../src/policies/index.ts'
import { Intents } from '../../../src/telemetry/intents.ts'
import { TaskCalls } from '../../../src/telemetry/task-calls.ts'
import type { Log } from '../../../src/telemetry/log.ts'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { observeAttempt, observe, type ObserveParts } from '../../../src/telemetry/observe.ts'
import {
  createTracing,
  type LossCause,
  type TracesConfig,
  type TracingParts,
} from '../../../src/telemetry/tracing.ts'
import { stamped } from '../../../src/telemetry/tracing/call-trace.ts'
import { type CallParts, toolCall } from '../../support/caller.ts'
import { testPolicyContext } from '../../support/policy-context.ts'
import { silent } from '../../support/log.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { noExperiments } from '../../support/no-experiments.ts'
import { OtlpReceiver } from '../../support/otlp-receiver.ts'
import { testTarget } from '../../support/target.ts'
import { faultLayer, type OneFault } from './one-fault.ts'
import { noRecorder } from '../../support/no-recorder.ts'

export const answered = (value: object = { result: {} }, more: object = {}): Outcome => ({
  kind: 'answered',
  result: { text: JSON.stringify(value), value: { ...value }, status: 200 },
  verdict: 'unchecked',
  ...more,
})

export const unavailable: Outcome = {
  kind: 'failed',
  error: gatewayError('upstream_unavailable', 'connection refused'),
}

export interface MeshSetUp {
  readonly config?: Partial<TracesConfig>
  readonly env?: TracingParts['env']
  readonly log?: Log
  readonly settings?: PolicySettings
  /** The upstream's reaction to each call; by default an immediate answer. */
  readonly upstream?: (call: Call, clock: ManualClock) => Promise<Outcome> | Outcome
  readonly fault?: OneFault
  /** The fates of a call's faults. */
  readonly account?: ObserveParts['faults']['account']
  readonly peer?: ReturnType<TracingParts['peerOf']>
  /** An endpoint instead of a collector of our own. */
  readonly endpoint?: string
}

/** Retries after 10 ms; no other policy. */
export const retrying: PolicySettings = { retry: policies.retry.schema.parse({ base: 10, cap: 10 }) }

/** A mesh as the gateway compiles it, with tracing and a scripted upstream. */
export async function tracedMesh(t: TestContext, setUp: MeshSetUp = {}) {
  const {
    config,
    env = {},
    log = silent,
    settings = {},
    upstream = () => answered(),
    account = () => [],
  } = setUp
  const clock = new ManualClock()
  const receiver = await OtlpReceiver.start(t)
  const exported: number[] = []
  const dropped: [number, LossCause][] = []
  const isListed = (_: string, tool: string) => tool !== 'made_up'
  const tracing = await createTracing({
    clock,
    log,
    env,
    version: '1.2.3',
    config: { endpoint: setUp.endpoint ?? receiver.url, sample: 1, payloads: false, ...config },
    counts: {
      exported: (count) => void exported.push(count),
      dropped: (count, cause) => void dropped.push([count, cause]),
    },
    isListed,
    peerOf: () => setUp.peer,
    conceal: (_, text) => text.replaceAll('hush', '…'),
  })
  t.after(() => tracing?.close())
  const seen: Call[] = []
  const accessLog = () => undefined
  const watching = {
    clock,
    metrics: createMetrics(),
    log: silent,
    isListed,
    faults: { live: true, corruptions: { any: false }, account },
    tracing,
    accessLog,
    recorder: noRecorder,
  }
  const mesh = compileMesh({
    policies,
    config: { defaults: settings, overrides: [] },
    context: testPolicyContext(clock),
    servers: {
      get: () =>
        testTarget({
          facts: () => ({ inputSchema: {}, outputSchema: undefined, fingerprint: '' }),
          effectOf: () => 'read_only',
        }),
    },
    readdress: () => undefined,
    observe: observe({
      ...watching,
      intents: new Intents(watching),
      taskCalls: new TaskCalls(watching.clock),
      experiments: noExperiments,
    }),
    attempt: observeAttempt(watching),
    faults: {
      client: (next) => next,
      upstream: setUp.fault === undefined ? (next) => next : faultLayer(setUp.fault),
    },
    transport: (call) => {
      call.record.attempts++
      call.record.replica = 0
      seen.push(stamped(call))
      return Promise.resolve(upstream(call, clock))
    },
  })
  const send = (call: Call) => mesh.serviceFor(call.server, call.method, call.tool)(call)
  return {
    clock,
    receiver,
    tracing,
    exported,
    dropped,
    /** The calls received by the upstream. */
    seen,
    send,
    /** Sends a tool call and advances the clock by a second. */
    async run(tool = 'look', parts: Partial<CallParts> = {}, args: Record<string, unknown> = {}) {
      const call = toolCall(tool, args, { startedAt: clock.now(), ...parts })
      const outcome = send(call)
      // The call's timers exist only after a turn.
      await clock.advance(0)
      await clock.advance(1_000)
      return { call, outcome: await outcome }
    },
    /** Returns all sent spans. */
    async spans() {
      await tracing?.close()
      return receiver.spans
    },
  }
}

export type TracedMesh = Awaited<ReturnType<typeof tracedMesh>>

/** Returns the `_meta` that a server received. */
export function metaOf(call: Call | undefined): Readonly<Record<string, unknown>> | undefined {
  const { params } = JSON.parse(call?.message.text ?? '{}') as {
    params?: { _meta?: Record<string, unknown> }
  }
  return params?._meta
}
