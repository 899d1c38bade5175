import type { FastifyInstance } from 'fastify'
import type { Experiments } from '../experiments/experiments.ts'
import { type Report, reportOn } from '../experiments/report.ts'
import { csvOf } from '../experiments/samples.ts'
import type { Experiment } from '../experiments/schema.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import { Settings } from '../mesh/settings.ts'
import { policies } from '../policies/index.ts'
import type { GatewayGeneration } from '../registry/generation.ts'

export interface AdminExperimentsParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  readonly experiments: Pick<Experiments, 'list' | 'get' | 'start' | 'stop'>
}

interface Named {
  readonly Params: { readonly name: string }
}

/**
 * `GET /admin/experiments` and `/admin/experiments/{name}`, with `/report` (JSON) and `/samples` (CSV) behind it;
 * `POST /admin/experiments/{name}/start` and `/stop`.
 */
export function registerAdminExperiments(
  app: FastifyInstance,
  { live, clock, experiments }: AdminExperimentsParts,
): void {
  /** What a policy set says of each policy, for calls that no override applies to. */
  const settingsOf = (set: string): Readonly<Record<string, unknown>> => {
    const { policies: config } = live.current.config
    const settings = new Settings(config)
    const of = (policy: string) => settings.of(policy, set, [])[0]
    return Object.fromEntries(Object.keys(policies).map((policy) => [policy, of(policy)]))
  }
  const report = (name: string): Report | undefined => {
    const found = experiments.get(name)
    return found && reportOn({ ...found, settingsOf, now: clock.now() })
  }
  const unknown = (name: string) => ({ error: `there is no experiment "${name.slice(0, 64)}"` })

  app.get('/admin/experiments', (_, reply) =>
    reply.send({ experiments: experiments.list().map(({ experiment, run }) => inShort(experiment, run)) }),
  )

  app.get<Named>('/admin/experiments/:name', ({ params: { name } }, reply) => {
    const found = experiments.get(name)
    if (found === undefined) return reply.code(404).send(unknown(name))
    return reply.send({ ...inShort(found.experiment, found.run), settings: found.experiment })
  })

  app.get<Named>('/admin/experiments/:name/report', ({ params: { name } }, reply) => {
    const found = report(name)
    return found === undefined ? reply.code(404).send(unknown(name)) : reply.send(found)
  })

  app.get<Named>('/admin/experiments/:name/samples', ({ params: { name } }, reply) => {
    const found = experiments.get(name)
    if (found === undefined) return reply.code(404).send(unknown(name))
    const lines = csvOf(found.run?.samples.all() ?? [])
    return reply.type('text/csv; charset=utf-8').send([...lines].join(''))
  })

  for (const what of ['start', 'stop'] as const)
    app.post<Named>(`/admin/experiments/:name/${what}`, ({ params: { name } }, reply) => {
      if (experiments.get(name) === undefined) return reply.code(404).send(unknown(name))
      const done = experiments[what](name)
      if (!done.ok) return reply.code(409).send({ error: done.why })
      const { experiment, run } = experiments.get(name)!
      return reply.send(inShort(experiment, run))
    })
}

type Run = NonNullable<ReturnType<AdminExperimentsParts['experiments']['get']>>['run']

/** What lists show of an experiment. */
function inShort({ name, arms, metric, active }: Experiment, run: Run) {
  const { verdict, treatment, verdicts, units } = run?.judgement ?? {}
  return {
    name,
    state: run === undefined ? 'not_started' : run.end === undefined ? 'running' : 'ended',
    active,
    arms: Object.fromEntries(
      Object.entries(arms).map(([arm, set]) => [arm, { set, units: units?.[arm] ?? 0 }]),
    ),
    metric,
    startedAt: run && new Date(run.startedAtWall).toISOString(),
    endedAt: run?.end && new Date(run.end.atWall).toISOString(),
    endedBecause: run?.end?.reason,
    treatment,
    verdict: verdict && shown(verdict),
    verdicts: verdicts && Object.fromEntries(Object.entries(verdicts).map(([arm, one]) => [arm, shown(one)])),
  }
}

/** Differences are treatment minus control, shares in [0, 1]; null where there is none yet. */
function shown({
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
