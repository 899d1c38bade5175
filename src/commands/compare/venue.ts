import { z } from 'zod'
import { chaos } from '../../chaos/plan/schema.ts'
import { health } from '../../config/schema/health-schema.ts'
import { config as schema, type Config } from '../../config/schema/schema.ts'
import { type Experiment, experiment as experimentSchema } from '../../experiments/schema.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import { loadConfig } from '../../config/load.ts'
import type { Cancellation } from '../../mesh/cancel.ts'
import type { Millis } from '../../mesh/clock.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'
import { telemetry } from '../../telemetry/schema.ts'
import { suggest } from '../../units/suggest.ts'
import { unusable, UnusableInput } from '../shared/arguments.ts'
import { type Control, controlAt } from '../shared/control.ts'
import type { Closing } from '../shared/signals.ts'
import { openStage, type Stage, stagedConfig } from '../shared/stage.ts'
import { startShop } from '../../load/shop/shop.ts'
import { otherGateway } from '../same-gateway.ts'
import { toolsAt } from '../../load/client.ts'
import { anything, ask } from './evidence.ts'
import type { Arms } from '../../load/twins.ts'
import type { KnownTools } from '../../load/workload.ts'

/** The policy sets: `control` is the baseline for `treatment`. */
export interface Sets {
  readonly control: string
  readonly treatment: string
}

/** A gateway with an experiment for the two sets; agents name the arm of each task. */
export interface Venue extends Stage {
  readonly experiment: string
  readonly arms: Arms
  readonly tools: KnownTools
  /** Starts the experiment of a running gateway. Rejects with an `UnusableInput`. */
  begin(): Promise<void>
}

/**
 * Returns a `minimumUnits` that keeps the experiment open during the whole run. An experiment can end early for harm
 * once a quarter of its minimum units is over.
 */
export const minimumFor = (tasks: number): number => Math.min(1_000_000, 4 * tasks + 4)

/** Longest run, and longest time of armed faults, in milliseconds. */
const LONGEST_MS: Millis = 86_400_000

const NAME = 'compare'

/** Source of the servers and policies of a gateway started for a run. */
export interface Origin {
  /** The config's file, or its name in messages. */
  readonly name: string
  readonly config: Config
}

/** Reads the config for a new gateway. Rejects with an `UnusableInput`. */
export async function originAt(file: string, env: Env): Promise<Origin> {
  const loaded = await loadConfig(file, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  return { name: file, config: loaded.config }
}

/** The servers of the demo, with policy sets worth comparing. `closing` gets the function to end the servers. */
export async function demoOrigin(closing: Closing): Promise<Origin> {
  const { mcpServers, close } = await startShop()
  closing.push(close)
  const config = schema.parse({
    mcpServers,
    policies: {
      // The servers answer within milliseconds, so the pauses between retries are equally short.
      defaults: { retry: { base: '10ms', cap: '100ms' } },
      sets: {
        no_retries: { retry: false },
        cautious: { retry: { maxRetries: 4, base: '10ms', cap: '100ms' } },
      },
    },
  })
  return { name: 'the demo', config }
}

export interface OwnOptions {
  readonly sets: Sets
  readonly tasks: number
  /** True if faults will be armed; the gateway then runs in a test environment. */
  readonly withFaults: boolean
  readonly env: Env
  readonly closing: Closing
  /** Ends the run and all waits early. */
  readonly stop: Cancellation
}

/**
 * Starts a gateway for a run, with a config's servers and policies, and an experiment. Arms no faults. Rejects with an
 * `UnusableInput`.
 */
export async function openOwn(origin: Origin, options: OwnOptions): Promise<Venue> {
  const { config, arms } = ownConfig(origin, options)
  const { stop } = options
  const stage = await openStage(config, { name: origin.name, ...options })
  return {
    ...stage,
    experiment: NAME,
    arms,
    tools: await knownTools(stage.url, stage.control, stop),
    // Does nothing: the experiment of this config starts with the gateway.
    begin: () => Promise.resolve(),
  }
}

/** Checks what can be checked of `openOwn` without starting a server. Throws an `UnusableInput`. */
export function checkOwn(origin: Origin, options: Pick<OwnOptions, 'sets' | 'tasks' | 'withFaults'>): void {
  stagedConfig(ownConfig(origin, options).config, origin.name)
}

/** Returns the config with an experiment for the two sets. Throws an `UnusableInput` for an unknown set. */
function ownConfig(
  { name, config }: Origin,
  { sets, tasks, withFaults }: Pick<OwnOptions, 'sets' | 'tasks' | 'withFaults'>,
): { readonly config: Config; readonly arms: Arms } {
  checkSets(sets, Object.keys(config.policies.sets), name)
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
  return { config: composed(config, experiment, withFaults), arms: { control, treatment } }
}

const composed = (config: Config, experiment: Experiment, withFaults: boolean): Config => ({
  ...config,
  gateway: { ...config.gateway, ...(withFaults && { environment: 'staging' }) },
  chaos: chaos.parse({ enabled: withFaults, maxTtl: LONGEST_MS }),
  experiments: [experiment],
  // Removes all webhooks, so faults of the comparison send no notices.
  health: health.parse({}),
  telemetry: telemetry.parse({}),
})

export interface RunningOptions {
  /** URLs of the two ports. */
  readonly control: string
  readonly data: string
  readonly token: string | undefined
  readonly sets: Sets
  readonly tasks: number
  /** List that gets the function to end a started experiment. */
  readonly closing: Closing
  /** Ends all waits for the data plane, and shortens timeouts of the control plane. */
  readonly stop: Cancellation
}

/** The fields of answers of `/admin` that this command reads. */
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
    // The settings are from the current config, because the arms in the report may be from an earlier run.
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

/**
 * Finds an experiment with these policy sets on a running gateway; the experiment must not have started yet. Rejects
 * with an `UnusableInput`.
 */
export async function openRunning(options: RunningOptions, env: Env): Promise<Venue> {
  const { sets, tasks, token, closing, stop } = options
  const control = controlAt({ base: options.control, token, env, hurry: stop })
  const { config } = await ask(control, { method: 'GET', path: '/admin/config' }, answers.config)
  checkSets(sets, Object.keys(config.policies?.sets ?? {}), options.control)
  const shown = await fittingExperiment(control, sets)
  const { name, state, settings } = shown
  const path = `/admin/experiments/${encodeURIComponent(name)}`
  if (settings.minimumUnits < minimumFor(tasks))
    throw new UnusableInput(
      `experiment "${name}" might end before ${tasks} tasks are played: set its "minimumUnits" to ${minimumFor(tasks)}, or play fewer`,
    )
  // A running experiment may belong to another comparison, which must not share it.
  if (state === 'running')
    throw new UnusableInput(
      `experiment "${name}" is running already: end it first (breakwater experiment stop ${name})${settings.active ? ', and give it "active: false"' : ''}`,
    )
  const other = await otherGateway(control, options.data, stop)
  if (other !== undefined) throw new UnusableInput(other)
  const url = `${options.data.replace(/\/+$/, '')}/mcp`
  const tools = await knownTools(url, control, stop)
  const begin = async () => {
    await ask(control, { method: 'POST', path: `${path}/start` }, anything)
    closing.push(() => control({ method: 'POST', path: `${path}/stop` }))
  }
  return { url, control, experiment: name, arms: armsFor(settings, sets)!, tools, begin }
}

async function fittingExperiment(control: Control, sets: Sets): Promise<Shown> {
  const { experiments } = await ask(
    control,
    { method: 'GET', path: '/admin/experiments' },
    answers.experiments,
  )
  for (const { name, kind } of experiments) {
    // Answers about a guarded run have another shape.
    if (kind === 'guarded') continue
    const path = `/admin/experiments/${encodeURIComponent(name)}`
    const shown = await ask(control, { method: 'GET', path }, answers.experiment)
    if (shown.settings.assignBy === 'agent' && armsFor(shown.settings, sets) !== undefined) return shown
  }
  const [a, b] = [sets.control, sets.treatment]
  throw new UnusableInput(
    `the gateway has no experiment with "assignBy: agent" and arms of the policy sets ${a} and ${b}; its config needs one:\n` +
      `  experiments:\n    - { name: ${NAME}, arms: { control: ${a}, treatment: ${b} }, assignBy: agent, fallback: exclude, metric: task_success, minimumUnits: 100000, active: false }`,
  )
}

/** The arms of an experiment for these sets; undefined without such arms. */
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
    throw new UnusableInput(`--sets  ${where}  policies.sets  there is no policy set "${set}"; ${hint}`)
  }
}

async function knownTools(url: string, control: Control, stop: Cancellation): Promise<KnownTools> {
  const listed = await toolsAt(url, stop).catch(unusable)
  const servers = new Map<string, ReadonlyMap<string, string>>()
  for (const { name } of await ask(control, { method: 'GET', path: '/admin/servers' }, answers.servers)) {
    const path = `/admin/servers/${encodeURIComponent(name)}`
    const { tools = [] } = await ask(control, { method: 'GET', path }, answers.server)
    servers.set(name, new Map(tools.map(({ key, exposed }) => [key, exposed])))
  }
  return { listed, servers }
}
