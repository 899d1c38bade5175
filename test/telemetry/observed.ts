import type { Call, Service } from '../../src/mesh/call.ts'
import { createAccessLog } from '../../src/telemetry/access-log.ts'
import { Intents } from '../../src/telemetry/intents.ts'
import { TaskCalls } from '../../src/telemetry/task-calls.ts'
import { collectInFlight } from '../../src/telemetry/scrape.ts'
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts'
import type { IsListed } from '../../src/telemetry/metrics/tool-series.ts'
import {
  observeAttempt,
  type ObserveAttemptParts,
  observe,
  type ObserveParts,
} from '../../src/telemetry/observe.ts'
import { telemetry } from '../../src/telemetry/schema.ts'
import type { Tracing } from '../../src/telemetry/tracing.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { noExperiments } from '../support/no-experiments.ts'
import { noRecorder } from '../support/no-recorder.ts'

/** Returns the exposition's lines with this prefix and a value other than 0. */
export async function exposedBy({ registry }: Pick<Metrics, 'registry'>, name: string): Promise<string[]> {
  const text = await registry.metrics()
  return text.split('\n').filter((line) => line.startsWith(`${name}{`) && !line.endsWith(' 0'))
}

/** The receivers of observations, and the clock. */
interface Recorded {
  readonly clock: ManualClock
  readonly recorder: ObserveParts['recorder'] & ObserveAttemptParts['recorder']
  readonly experiments: ObserveParts['experiments']
}

/** The outermost and the innermost observing layer around a service, and their reports. */
export function observed(
  next: Service,
  isListed: IsListed = () => true,
  accessLog: object = {},
  account: ObserveParts['faults']['account'] = () => [],
  tracing: Pick<Tracing, 'begin' | 'end'> | undefined = undefined,
  { clock = new ManualClock(), recorder = noRecorder, experiments = noExperiments }: Partial<Recorded> = {},
) {
  const metrics = createMetrics()
  const { log, lines } = recordedLog()
  const intents = new Intents({ clock, metrics })
  const settings = telemetry.parse({ accessLog }).accessLog
  const parts = {
    clock,
    metrics,
    log,
    isListed,
    faults: { live: true, corruptions: { any: false }, account },
    intents,
    taskCalls: new TaskCalls(clock),
    tracing: tracing && { ...tracing, beginAttempt: (call: Call) => call, endAttempt: () => undefined },
    recorder,
    experiments,
    accessLog: createAccessLog(settings, { log, clock }),
  }
  return {
    ...parts,
    lines,
    service: observe(parts)(observeAttempt(parts)(next)),
    attempt: observeAttempt(parts)(next),
    exposed(name: string): Promise<string[]> {
      collectInFlight(metrics)
      return exposedBy(metrics, name)
    },
  }
}
