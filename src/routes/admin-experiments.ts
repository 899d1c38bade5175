import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { unnamedBy } from '../experiments/assignment.ts'
import type { Experiments, Listed } from '../experiments/experiments.ts'
import type { Config } from '../config/schema/schema.ts'
import { withUnits } from '../config/schema/with-units.ts'
import { redact } from '../config/secrets/redact.ts'
import { ReportThread } from '../experiments/report-thread.ts'
import { factsOf, type SettingsUnder } from '../experiments/report.ts'
import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import { csvOf } from '../experiments/samples.ts'
import type { Experiment } from '../experiments/schema.ts'
import { type Clock, nextTurn } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import { Settings } from '../mesh/settings.ts'
import { policies } from '../policies/index.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { guardedInShort, whoIn } from './admin-guarded.ts'
import { firstOf } from '../units/numbered.ts'

export interface AdminExperimentsParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  /** Comparisons of policy sets from the config. */
  readonly experiments: Pick<Experiments, 'runs' | 'get' | 'start' | 'stop' | 'waitsFor'>
  /** Guarded runs started by this API; never named like a comparison. */
  readonly guarded: Pick<GuardedExperiments, 'list' | 'get' | 'stop' | 'needsSignature'>
}

interface Named {
  readonly Params: { readonly name: string }
}

/**
 * Registers `GET /admin/experiments` and `/admin/experiments/{name}`, with `/report` (JSON) and `/samples` (CSV) below;
 * `POST /admin/experiments/{name}/start` and `/stop`.
 */
export function registerAdminExperiments(
  app: FastifyInstance,
  { live, clock, experiments, guarded }: AdminExperimentsParts,
): void {
  /** Returns a function with the settings of each policy in a policy set, for calls without a matching override. */
  const settingsUnder: SettingsUnder = (given) => {
    const settings = new Settings(given ?? live.current.config.policies)
    return (set) =>
      Object.fromEntries(
        Object.entries(policies).map(([policy, { schema }]) => [
          policy,
          withUnits(schema, settings.of(policy, set, [])[0]),
        ]),
      )
  }
  /**
   * Returns an experiment's settings from the config. Hides values from variables, because a salt may be secret; shows
   * the names of policy sets.
   */
  const shownSettings = ({ name, arms }: Experiment): unknown => {
    const { experiments: all } = redact(live.current.config) as Pick<Config, 'experiments'>
    return { ...all.find((experiment) => experiment.name === name), arms }
  }
  const shown = ({ experiment, run }: Listed) =>
    inShort(experiment, run, experiments.waitsFor(experiment.name))
  const thread = new ReportThread()
  const unknown = (name: string) => {
    const names = [...experiments.runs().map(({ experiment }) => experiment), ...guarded.list()].map(
      (one) => one.name,
    )
    const known = names.length === 0 ? '' : `; there are ${firstOf(names)}`
    return { error: `there is no experiment "${name.slice(0, 64)}"${known}` }
  }

  app.get('/admin/experiments', (_, reply) =>
    reply.send({
      experiments: [
        ...experiments.runs().map(shown),
        ...guarded.list().map((run) => guardedInShort(run, guarded.needsSignature)),
      ],
    }),
  )

  app.get<Named>('/admin/experiments/:name', ({ params: { name } }, reply) => {
    const run = guarded.get(name)
    if (run !== undefined)
      return reply.send({
        ...guardedInShort(run, guarded.needsSignature),
        spec: run.spec,
        targets: run.targets,
      })
    const found = experiments.get(name)
    if (found === undefined) return reply.code(404).send(unknown(name))
    return reply.send({ ...shown(found), settings: shownSettings(found.experiment) })
  })

  app.get<Named>('/admin/experiments/:name/report', async ({ params: { name } }, reply) => {
    const run = guarded.get(name)
    if (run !== undefined) return reply.send(run)
    const found = experiments.get(name)
    if (found === undefined) return reply.code(404).send(unknown(name))
    const key = `${name} ${found.run?.startedAt}`
    return reply.send(await thread.report(key, () => factsOf(found, settingsUnder, clock.now())))
  })

  app.get<Named>('/admin/experiments/:name/samples', ({ params: { name } }, reply) => {
    const found = experiments.get(name)
    if (found === undefined) return reply.code(404).send(unknown(name))
    // Copies the samples, because a running experiment changes its samples while the response is written.
    const units = (found.run?.samples.all() ?? []).map((sample) => ({
      ...sample,
      durations: [...sample.durations],
    }))
    return reply.type('text/csv; charset=utf-8').send(Readable.from(inTurns(csvOf(units))))
  })

  for (const what of ['start', 'stop'] as const)
    app.post<Named>(`/admin/experiments/:name/${what}`, ({ params: { name }, body }, reply) => {
      if (what === 'stop' && guarded.get(name) !== undefined) {
        const stopped = guarded.stop(name, whoIn(body), 'by hand')
        if (!stopped.ok) return reply.code(409).send({ error: stopped.why })
        return reply.send(guardedInShort(guarded.get(name)!, guarded.needsSignature))
      }
      if (experiments.get(name) === undefined) return reply.code(404).send(unknown(name))
      const done = experiments[what](name)
      if (!done.ok) return reply.code(409).send({ error: done.why })
      return reply.send(shown(experiments.get(name)!))
    })
}

/** Most lines written in one turn of the event loop. */
const LINES_A_TURN = 500

/** Yields lines in portions, with a turn of the event loop between. */
async function* inTurns(lines: Iterable<string>): AsyncGenerator<string> {
  let portion: string[] = []
  for (const line of lines) {
    if (portion.push(line) < LINES_A_TURN) continue
    yield portion.join('')
    portion = []
    await nextTurn()
  }
  yield portion.join('')
}

type Run = NonNullable<ReturnType<AdminExperimentsParts['experiments']['get']>>['run']

/** Returns an experiment for lists. After a run, shows the settings of the run, even if the config has changed. */
function inShort({ name, active, ...configured }: Experiment, run: Run, waitsFor?: string) {
  const { arms, metric } = run?.experiment ?? configured
  const { verdict, treatment, verdicts, units } = run?.judgement ?? {}
  const excluded = run?.samples.out.excluded ?? 0
  return {
    kind: 'comparison',
    name,
    state: run === undefined ? 'not_started' : run.end === undefined ? 'running' : 'ended',
    active,
    waitsFor,
    arms: Object.fromEntries(
      Object.entries(arms).map(([arm, set]) => [arm, { set, units: units?.[arm] ?? 0 }]),
    ),
    leftOut:
      run && excluded > 0 ? { calls: excluded, why: `they named ${unnamedBy(run.experiment)}` } : undefined,
    metric,
    startedAt: run && new Date(run.startedAtWall).toISOString(),
    endedAt: run?.end && new Date(run.end.atWall).toISOString(),
    endedBecause: run?.end?.reason,
    treatment,
    verdict: verdict && verdictShown(verdict),
    verdicts:
      verdicts && Object.fromEntries(Object.entries(verdicts).map(([arm, one]) => [arm, verdictShown(one)])),
  }
}

/**
 * Returns a verdict for the report. Differences are treatment minus control; shares are in [0, 1]; a value is null
 * without data.
 */
function verdictShown({
  result,
  sentence,
  difference,
  low,
  high,
  units,
  harm,
}: NonNullable<Run>['judgement']['verdict']) {
  return { result, sentence, difference, low, high, units, harm }
}
