import { z } from 'zod'
import { callMetrics } from './claims.ts'
import { noHits, type RunRecord } from './record.ts'
import { states } from './spec.ts'

/** Matches the id of a run. The id is part of a file name. */
const idPattern = /^[a-z0-9][a-z0-9-]{0,63}$/

export const isRunId = (id: string): boolean => idPattern.test(id)

const text = z.string().max(100_000)
const texts = z.array(text)
const count = z.number()
/** In JSON, an unknown or non-finite number is null or missing. */
const told = z.number().nullish()
/** Milliseconds since the Unix epoch, within the range of `Date`. */
const moment = z.number().min(0).max(8.64e15)

const figures = z.looseObject({
  calls: count,
  failed: count,
  attempts: count,
  rejections: z.record(z.string(), count),
  p50: told,
  p95: told,
  p99: told,
})
const cells = z.array(z.tuple([count, count]))
const sampled = z.looseObject({
  calls: count,
  failed: count,
  begun: count,
  retries: count,
  rejections: z.record(z.string(), count),
  p95: told,
})
const judged = z.array(z.looseObject({ claim: text, found: text, holds: z.boolean().nullish() }))
const phase = z.enum(['waiting', 'baseline', 'stage', 'recovery', 'over'])
const rule = z.looseObject({
  metric: z.enum(callMetrics),
  above: count,
  of: text,
  for: count,
  learned: text.optional(),
})

const spec = z.looseObject({
  title: text.optional(),
  owner: text,
  reason: text,
  hypothesis: z.looseObject({ title: text.optional() }),
  arms: z.looseObject({ control: text, treatment: text }),
  faults: z.array(z.looseObject({ type: text })),
  stages: z.array(z.looseObject({ share: count, duration: count })).min(1),
  gate: z.looseObject({ over: count, minimum: count }),
  baseline: z.looseObject({ duration: count }),
})

/** Every field read by lists, reports, pages and the end of a run. Other fields may hold anything. */
const record = z.looseObject({
  format: z.literal(1),
  id: z.string().regex(idPattern),
  kind: z.literal('guarded'),
  name: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$/),
  spec,
  shape: text,
  hashes: z.looseObject({ config: text, policies: text, faults: text }),
  seed: text,
  targets: z.looseObject({
    environment: text,
    servers: z.array(z.looseObject({ name: text, tools: texts, hit: texts })),
  }),
  actor: text,
  approver: text.optional(),
  proof: z
    .looseObject({
      proved: z.enum(['key', 'claimed']),
      self: z.literal(true).optional(),
      envelope: text.optional(),
      proposal: text.optional(),
    })
    .optional(),
  firstStage: count,
  state: z.enum(states),
  phase,
  reason: text,
  requestedAt: moment,
  beganAt: moment.optional(),
  endedAt: moment.optional(),
  stage: count,
  rules: z.array(rule),
  hypothesis: z.looseObject({ before: judged, after: judged }),
  baseline: figures.optional(),
  stages: z.array(
    z.looseObject({
      share: count,
      beganAtMs: count,
      control: figures,
      treatment: figures,
      cells: z.looseObject({ control: cells, treatment: cells }),
      claims: judged,
    }),
  ),
  samples: z.array(z.looseObject({ atMs: count, injected: count, arms: z.record(z.string(), sampled) })),
  decisions: z.array(z.looseObject({ atMs: count, what: text, why: text })),
  breach: z.looseObject({ rule, value: count, calls: count, forMs: count }).optional(),
  nearest: z.looseObject({ rule, value: count, calls: count }).optional(),
  faults: z.array(
    z.looseObject({
      name: text,
      type: text,
      ...(Object.fromEntries(Object.keys(noHits).map((key) => [key, count])) as Record<
        keyof typeof noHits,
        typeof count
      >),
    }),
  ),
  engineErrors: count,
  traces: texts,
  detection: z.looseObject({ afterMs: told, sign: text.optional() }).optional(),
  rollback: z
    .looseObject({
      armed: texts,
      arms: texts,
      // Unknown if the gateway ended before the rollback.
      atMs: count.optional(),
      tookMs: count.optional(),
      chaos: text,
      troubled: texts,
    })
    .optional(),
  recovery: z
    .looseObject({
      recoveredAfterMs: told,
      steadyAfterMs: told,
      waitedMs: count,
      limitMs: count,
      layers: z.record(z.string(), told),
    })
    .optional(),
  troubles: z.array(z.looseObject({ name: text, state: text, fromMs: count, untilMs: told })),
  probes: z.array(
    z.looseObject({
      atMs: count,
      server: text,
      state: text,
      reason: text.optional(),
      tookMs: count,
    }),
  ),
  estimates: z.array(z.looseObject({ of: text, expected: text, found: text, isRight: z.boolean() })),
  proposal: text.optional(),
})

/** Returns true when a value has all fields of a run's record that are read anywhere. */
export const isRunRecord = (value: unknown): value is RunRecord => record.safeParse(value).success
