import { z } from 'zod'
import { chaos } from '../../chaos/plan/schema.ts'
import { health } from '../../config/schema/health-schema.ts'
import { config as schema, type Config } from '../../config/schema/schema.ts'
import { type Experiment, experiment as experimentSchema } from '../../experiments/schema.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import { brokenRules } from '../../config/issues/rules.ts'
import { formatPath } from '../../config/files/places.ts'
import { loadConfig } from '../../config/load.ts'
import { newControlToken } from '../../gateway/control-token.ts'
import { startGateway } from '../../gateway/gateway.ts'
import type { Cancellation } from '../../mesh/cancel.ts'
import { systemClock, type Millis } from '../../mesh/clock.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'
import { settled } from '../../registry/listing.ts'
import { createLog } from '../../telemetry/log.ts'
import { telemetry } from '../../telemetry/schema.ts'
import { suggest } from '../../units/suggest.ts'
import { type Control, controlAt } from '../shared/control.ts'
import { startOrders } from '../../load/shop/orders-server.ts'
import { docsServer } from '../../load/shop/tools.ts'
import { otherGateway } from '../same-gateway.ts'
import { CompareError, toolsAt } from '../../load/agents.ts'
import { anything, ask } from './evidence.ts'
import type { Arms } from '../../load/twins.ts'
import type { KnownTools } from '../../load/workload.ts'

/** The two policy sets; the first is what the other is compared with. */
export interface Sets {
  readonly control: string
  readonly treatment: string
}

/** A gateway that has an experiment for the two sets, in which agents name the arm of each task. */
export interface Venue {
  /** Where agents find all servers: `…/mcp`. */
  readonly url: string
  readonly control: Control
  readonly experiment: string
  readonly arms: Arms
  readonly tools: KnownTools
  /** Starts the experiment of a gateway that runs. Rejects with a `CompareError`. */
  begin(): Promise<void>
  /** Ends the experiment, and a gateway that was started for the run. */
  close(): Promise<void>
}

/** So many units an arm would have to have for its experiment to end before the run does: harm is seen from a quarter on. */
export const minimumFor = (tasks: number): number => Math.min(1_000_000, 4 * tasks + 4)

/** How long servers may take to come up, in milliseconds. */
const START_MS: Millis = 60_000

/** Longest run, and longest time that faults stay armed, in milliseconds. */
const LONGEST_MS: Millis = 86_400_000

/** The name of the experiment of a gateway that is started for a run. */
const NAME = 'compare'

/** Servers for a gateway that is started for a run: a name for messages, and a config. */
export interface Origin {
  /** File of the config, or what else it is called in messages. */
  readonly name: string
  readonly config: Config
  close(): Promise<void>
}

/** Reads the config of a gateway that is to be started. Rejects with a `CompareError`. */
export async function originAt(file: string, env: Env): Promise<Origin> {
  const loaded = await loadConfig(file, env)
  if (!loaded.ok) throw new CompareError(loaded.errors.map(formatIssue).join('\n'))
  return { name: file, config: loaded.config, close: () => Promise.resolve() }
}

/** The servers of the demo, one behind a pipe and one behind HTTP, with policy sets that one may want to compare. */
export async function demoOrigin(): Promise<Origin> {
  const orders = await startOrders()
  const config = schema.parse({
    mcpServers: {
      docs: { command: process.execPath, args: [docsServer], era: 'legacy', trusted: true },
      orders: { url: orders.url, era: 'legacy', trusted: true },
    },
    policies: {
      // Servers that answer within milliseconds are tried again as soon.
      defaults: { retry: { base: '10ms', cap: '100ms' } },
      sets: {
        no_retries: { retry: false },
        cautious: { retry: { maxRetries: 4, base: '10ms', cap: '100ms' } },
      },
    },
  })
  return { name: 'the demo', config, close: () => orders.close() }
}

export interface OwnOptions {
  readonly sets: Sets
  readonly tasks: number
  /** Whether faults are to be armed: then its environment is one for tests. */
  readonly withFaults: boolean
  /** Ends it early, and all waiting. */
  readonly stop: Cancellation
}

/**
 * Starts a gateway for a run: with the servers and policies of a config, ports and token of its own, and one experiment.
 * It keeps nothing, tells no collector of anything, and arms no faults by itself. Rejects with a `CompareError`.
 */
export async function openOwn(origin: Origin, options: OwnOptions, env: Env): Promise<Venue> {
  const { sets, tasks, withFaults, stop } = options
  checkSets(sets, Object.keys(origin.config.policies.sets), origin.name)
  const armOf = (set: string) => set.slice(0, 40)
  const control = armOf(sets.control)
  const treatment =
    armOf(sets.treatment) === control ? `${control.slice(0, 34)}_again` : armOf(sets.treatment)
  const experiment = experimentSchema.parse({
    name: NAME,
    arms: { [control]: sets.control, [treatment]: sets.treatment },
    assignBy: 'agent',
    fallback: 'exclude',
    metric: 'task_success',
    minimumUnits: Math.max(10, minimumFor(tasks)),
    maxDuration: LONGEST_MS,
  })
  const token = newControlToken()
  const config = composed(origin.config, { experiment, token, withFaults })
  for (const { path, message } of brokenRules(config))
    throw new CompareError(`${origin.name}  ${formatPath(path)}  ${message}`)
  const variables = { ...env, OTEL_SDK_DISABLED: 'true' }
  const source = { config, path: origin.name, env: variables, keepsKill: false }
  const gateway = await startGateway({ ...source, log: createLog('silent') }).catch((error: unknown) => {
    throw new CompareError(`the gateway does not start: ${(error as Error).message}`)
  })
  try {
    const { servers } = gateway.live.current
    await settled(servers.values(), systemClock, START_MS, { signal: stop })
    if (stop.aborted) throw new CompareError('it was stopped before it began')
    for (const { name, state, error, config: server } of servers.values())
      if (state !== 'up' && !server.disabled)
        throw new CompareError(`server ${name} is ${state}: ${error?.message ?? 'no reason known'}`)
    const known = controlAt({ base: gateway.control, token, env: {}, hurry: stop })
    const url = `${gateway.data}/mcp`
    return {
      url,
      control: known,
      experiment: NAME,
      arms: { control, treatment },
      tools: await knownTools(url, known, stop),
      // The experiment of this config starts with the gateway.
      begin: () => Promise.resolve(),
      close: () => gateway.close(),
    }
  } catch (error) {
    await gateway.close()
    throw error
  }
}

/** A config as it is for one run. */
function composed(
  config: Config,
  own: { readonly experiment: Experiment; readonly token: string; readonly withFaults: boolean },
): Config {
  const { experiment, token, withFaults } = own
  const { stateDir: _, ...gateway } = config.gateway
  return {
    ...config,
    gateway: {
      ...gateway,
      listen: '127.0.0.1:0',
      control: '127.0.0.1:0',
      controlToken: token,
      drain: 1_000,
      ...(withFaults && { environment: 'staging' }),
    },
    chaos: chaos.parse({ enabled: withFaults, maxTtl: LONGEST_MS }),
    experiments: [experiment],
    // Nobody is to be told of outages that a comparison makes.
    health: health.parse({}),
    telemetry: telemetry.parse({}),
  }
}

export interface RunningOptions {
  /** URLs of the two ports. */
  readonly control: string
  readonly data: string
  readonly token: string | undefined
  readonly sets: Sets
  readonly tasks: number
  /** Ends all waiting for its data plane, and has its control plane waited for no longer than whoever stops a run likes to. */
  readonly stop: Cancellation
}

/** As much of the answers of `/admin` as is read. */
const answers = {
  config: z.object({
    config: z.object({
      policies: z.object({ sets: z.record(z.string(), z.unknown()).optional() }).optional(),
    }),
  }),
  experiments: z.object({
    experiments: z.array(z.object({ name: z.string(), kind: z.string().optional() })),
  }),
  experiment: z.object({
    name: z.string(),
    state: z.enum(['not_started', 'running', 'ended']),
    // As the config has it now: the arms beside it may be those of an earlier run.
    settings: z.object({
      assignBy: z.string(),
      minimumUnits: z.number(),
      active: z.boolean(),
      arms: z.record(z.string(), z.string()),
    }),
  }),
  servers: z.array(z.object({ name: z.string() })),
  server: z.object({
    tools: z.array(z.object({ key: z.string(), exposed: z.string() })).optional(),
  }),
}

type Shown = z.output<typeof answers.experiment>

/** Takes a gateway that runs and has a fitting experiment, which does not run yet. Rejects with a `CompareError`. */
export async function openRunning(options: RunningOptions, env: Env): Promise<Venue> {
  const { sets, tasks, token, stop } = options
  const control = controlAt({ base: options.control, token, env, hurry: stop })
  const { config } = await ask(control, { method: 'GET', path: '/admin/config' }, answers.config)
  checkSets(sets, Object.keys(config.policies?.sets ?? {}), options.control)
  const shown = await fittingExperiment(control, sets)
  const { name, state, settings } = shown
  const path = `/admin/experiments/${encodeURIComponent(name)}`
  if (settings.minimumUnits < minimumFor(tasks))
    throw new CompareError(
      `experiment "${name}" might end before ${tasks} tasks are played: set its "minimumUnits" to ${minimumFor(tasks)}, or play fewer`,
    )
  // Another comparison may be under way in it: whoever has started it is alone in it.
  if (state === 'running')
    throw new CompareError(
      `experiment "${name}" runs already: end it first (breakwater experiment stop ${name})${settings.active ? ', and give it "active: false"' : ''}`,
    )
  const other = await otherGateway(control, options.data, stop)
  if (other !== undefined) throw new CompareError(other)
  const url = `${options.data.replace(/\/+$/, '')}/mcp`
  const tools = await knownTools(url, control, stop)
  let isBegun = false
  const begin = async () => {
    await ask(control, { method: 'POST', path: `${path}/start` }, anything)
    isBegun = true
  }
  const close = async () => {
    if (isBegun) await control({ method: 'POST', path: `${path}/stop` })
  }
  return { url, control, experiment: name, arms: armsFor(settings, sets)!, tools, begin, close }
}

async function fittingExperiment(control: Control, sets: Sets): Promise<Shown> {
  const { experiments } = await ask(
    control,
    { method: 'GET', path: '/admin/experiments' },
    answers.experiments,
  )
  for (const { name, kind } of experiments) {
    // A guarded run has answers of another shape.
    if (kind === 'guarded') continue
    const path = `/admin/experiments/${encodeURIComponent(name)}`
    const shown = await ask(control, { method: 'GET', path }, answers.experiment)
    if (shown.settings.assignBy === 'agent' && armsFor(shown.settings, sets) !== undefined) return shown
  }
  const [a, b] = [sets.control, sets.treatment]
  throw new CompareError(
    `the gateway has no experiment with "assignBy: agent" and arms of the policy sets ${a} and ${b}; its config needs one:\n` +
      `  experiments:\n    - { name: ${NAME}, arms: { control: ${a}, treatment: ${b} }, assignBy: agent, fallback: exclude, metric: task_success, minimumUnits: 100000, active: false }`,
  )
}

/** The arms of an experiment that go by these sets; undefined when it has none. */
function armsFor({ arms }: Shown['settings'], sets: Sets): Arms | undefined {
  const all = Object.entries(arms)
  const [control] = all.find(([, set]) => set === sets.control) ?? []
  const [treatment] = all.find(([name, set]) => set === sets.treatment && name !== control) ?? []
  return control === undefined || treatment === undefined ? undefined : { control, treatment }
}

function checkSets(sets: Sets, named: readonly string[], where: string): void {
  const known = [DEFAULT_SET, ...named]
  for (const set of Object.values(sets) as string[]) {
    if (known.includes(set)) continue
    const meant = suggest(set, known)
    const hint = meant === undefined ? `there are ${known.join(', ')}` : `did you mean "${meant}"?`
    throw new CompareError(`--sets  ${where}  policies.sets  there is no policy set "${set}"; ${hint}`)
  }
}

/** Resolves to the tools that can be called. Rejects with a `CompareError`. */
async function knownTools(url: string, control: Control, stop: Cancellation): Promise<KnownTools> {
  const listed = await toolsAt(url, stop)
  const servers = new Map<string, ReadonlyMap<string, string>>()
  for (const { name } of await ask(control, { method: 'GET', path: '/admin/servers' }, answers.servers)) {
    const path = `/admin/servers/${encodeURIComponent(name)}`
    const { tools = [] } = await ask(control, { method: 'GET', path }, answers.server)
    servers.set(name, new Map(tools.map(({ key, exposed }) => [key, exposed])))
  }
  return { listed, servers }
}
