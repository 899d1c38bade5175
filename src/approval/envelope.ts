import { z } from 'zod'
import { faults as faultTypes } from '../chaos/faults/index.ts'
import { type Claim, claims, examples } from '../claims/claim.ts'
import { subjects } from '../claims/subjects.ts'
import { callMetrics, type CallMetric } from '../experiments/guarded/claims.ts'
import { lengthOf, type Spec, type SpecFault } from '../experiments/guarded/spec.ts'
import type { Effect } from '../mesh/policy.ts'
import { canonicalJson } from '../protocol/canonical-json.ts'
import { duration, formatDuration } from '../units/duration.ts'
import { faultLimit, isWithinLimit, limitInWords } from './fault-limits.ts'
import { numbered } from '../units/numbered.ts'
import { signatureSchema } from './keys.ts'
import { holds, windowSchema } from './window.ts'

/** Maximum lifetime of an envelope, in milliseconds: 30 days. */
const LONGEST_LIFE_MS = 30 * 86_400_000

const name = z.string().regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')
const share = z.number().gt(0).max(0.9)
const text256 = z.string().min(1).max(256)

/** Reads a rule of a gate: a claim, and optionally the time for which the claim may be false. */
const rule = z
  .string()
  .max(100)
  .transform((given, context): GateRule => {
    const [, text = '', forText] = /^(.*?)(?:\s+for\s+(\S+))?$/.exec(given.trim()) ?? []
    const read = claims<CallMetric>(callMetrics).safeParse([text])
    const forMs = forText === undefined ? 0 : duration({ max: 600_000 }).safeParse(forText).data
    const claim: Claim<CallMetric> | undefined = read.data?.[0]
    if (claim === undefined || forMs === undefined || !claim.operator.startsWith('<')) {
      context.addIssue({
        code: 'custom',
        message: `expected a rule such as "error_ratio < 1% for 30s": one of ${callMetrics.join(', ')}, then < and ${examples.share} or ${examples.ms}`,
      })
      return z.NEVER
    }
    return { metric: claim.subject, above: claim.value, for: forMs, text: given.trim() }
  })

/** A rule that the gate of a run must contain, with the same or stricter limits. */
export interface GateRule {
  readonly metric: CallMetric
  /** The limit, in the unit of the metric. */
  readonly above: number
  /** The time for which the claim may be false, in milliseconds. */
  readonly for: number
  /** The rule as written. */
  readonly text: string
}

const target = z.strictObject({
  server: name,
  identity: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'expected 64 hex digits')
    .describe('SHA-256 of the URLs or the command of the server, so a server of the same name does not fit.'),
  tools: z.array(text256).min(1).max(256).describe('Names of tools, without globs.'),
})

const allowedFault = z.strictObject({
  type: z.string().min(1).max(64),
  maxRate: z.number().gt(0).max(1),
  limits: z
    .record(z.string().max(64), faultLimit)
    .default({})
    .describe(
      'Most for a field of the fault, by its path, such as `distribution.max: 5s`; least where less does more harm, such as `slots`. Or `min` and `max`.',
    ),
  texts: z
    .array(z.string().max(256))
    .max(64)
    .default([])
    .describe(
      'Free texts that the fault may have, such as names of fields, and free JSON as a whole, such as `{"a":1}` with sorted keys; others are outside.',
    ),
})

/** The schema of an envelope: the limits within which agents may run experiments. */
export const envelopeSchema = z.strictObject({
  format: z.literal(1),
  id: z.string().regex(/^env-[a-z0-9]{4,32}$/, 'expected env- and 4 to 32 of a-z 0-9'),
  gateway: z.string().regex(/^gw-[0-9a-f]{32}$/, 'expected the id of a gateway: gw- and 32 hex digits'),
  environment: name,
  notBefore: z.iso.datetime(),
  expiresAt: z.iso.datetime(),
  proposers: z.array(name).min(1).max(32).describe('Names of agents in `gateway.controlMcp.tokens`.'),
  targets: z.array(target).min(1).max(64),
  effects: z.array(z.enum(['read_only', 'idempotent', 'write', 'unknown'])).default(['read_only']),
  faults: z.array(allowedFault).min(1).max(64),
  maxRate: z
    .number()
    .gt(0)
    .max(1)
    .optional()
    .describe(
      'Maximum for the sum of the rates of all faults of a run. Without this limit, a run has one fault.',
    ),
  ladder: z
    .array(share)
    .min(1)
    .max(10)
    .refine((rungs) => rungs.every((rung, index) => rung > (rungs[index - 1] ?? 0)), 'expected rising shares')
    .default([0.1, 0.25, 0.5]),
  maxStage: duration({ min: 1_000, max: 3_600_000 }),
  maxRun: duration({ min: 1_000, max: 4 * 3_600_000 }),
  gate: z.array(rule).min(1).max(8),
  gateWindow: z
    .strictObject({
      over: duration({ min: 1_000, max: 60_000 }).default(5_000),
      minimum: z.int().min(1).max(100_000).default(10),
      missing: duration({ min: 1_000, max: 300_000 }).default(30_000),
    })
    .prefault({})
    .describe('Maxima for `over`, `minimum` and `missing` of a gate: larger values make a gate blind.'),
  traffic: z
    .strictObject({
      hitsPerMinute: z
        .number()
        .gt(0)
        .max(1e6)
        .describe('Limit for the injected faults in a minute of a run.'),
      tenants: z
        .int()
        .min(1)
        .max(10_000)
        .optional()
        .describe('Limit for the number of tenants in the recent calls to the targets.'),
    })
    .optional(),
  windows: z.array(windowSchema).max(14).default([]).describe('Times for runs; empty: any time.'),
  budget: z.strictObject({
    runs: z.int().min(1).max(1_000),
    perDay: z.int().min(1).max(100),
    aborts: z
      .int()
      .min(1)
      .max(100)
      .describe('After this number of runs that did not complete, a person must lift the suspension.'),
  }),
})

export const signedEnvelopeSchema = z.strictObject({
  // The signature covers the envelope as written, so no schema may change the values.
  envelope: z.record(z.string(), z.unknown()),
  signature: signatureSchema,
})

export type Envelope = z.output<typeof envelopeSchema>
export type SignedEnvelope = z.output<typeof signedEnvelopeSchema>

/** Returns the problems of an envelope that concern every run. Empty: the envelope is sound. */
export function unsoundIn({ notBefore, expiresAt, ladder, maxStage, maxRun }: Envelope): string[] {
  const [from, to] = [Date.parse(notBefore), Date.parse(expiresAt)]
  const problems: string[] = []
  if (to <= from) problems.push('expiresAt is not after notBefore')
  if (to - from > LONGEST_LIFE_MS) problems.push('the envelope lasts more than 30 days, the longest life')
  if (maxRun < maxStage) problems.push('maxRun is shorter than maxStage')
  if (ladder[0]! > 0.25) problems.push('the first rung of the ladder is above 25%')
  return problems
}

/** A tool that a fault of the run could hit. */
export interface HitTool {
  readonly server: string
  /** SHA-256 of the server's URLs or command. */
  readonly identity: string
  readonly tool: string
  readonly effect: Effect
}

/** A limit that a run exceeds. */
export interface Exceeded {
  readonly limit: string
  readonly allowed: string
  readonly asked: string
  /** The name of the tool outside: a server chose the name. */
  readonly untrusted?: { readonly tool: string }
}

export interface Proposed {
  readonly by: string
  readonly environment: string
  readonly spec: Spec
  readonly firstStage: number
  readonly hit: readonly HitTool[]
  /** Each tool in the arms of the run, by server. */
  readonly covered: readonly { readonly server: string; readonly tool: string }[]
  /** Whether a fault may have any text, number or JSON at a path: not one of a few, and not its default. */
  readonly isFreeText: (fault: SpecFault, path: readonly string[]) => boolean
  /** Whether a field belongs to another kind of value than the fault has, so the fault cannot have the field. */
  readonly isOfOtherKind: (fault: SpecFault, path: readonly string[]) => boolean
  /** Formats a number of a field of a fault with the unit of the field. */
  readonly inUnits: (type: string, path: readonly string[], value: number) => string
  /** Number of distinct tenants in the recent calls to the targets. Undefined: no recent calls. */
  readonly tenants: number | undefined
  /**
   * Returns the highest share of a completed run in the last 14 days, for a server identity and an equal fault. 0
   * without a run.
   */
  readonly completedShare: (identity: string, fault: SpecFault) => number
  /** Milliseconds since the Unix epoch. */
  readonly now: number
}

/** Most exceeded limits that a check returns. */
const MOST_EXCEEDED = 32

/**
 * Returns the limits of the envelope that a run exceeds, at most 32; empty when the run is inside. An agent chooses the
 * size of a run, so a run with other agents, other targets or too many values gets no further checks.
 */
export function outsideOf(envelope: Envelope, run: Proposed): readonly Exceeded[] {
  const meant = outsideMeaning(envelope, run)
  const found = meant.length > 0 ? meant : outsideLimits(envelope, run)
  return found.slice(0, MOST_EXCEEDED)
}

function outsideMeaning(envelope: Envelope, run: Proposed): readonly Exceeded[] {
  const found: Exceeded[] = []
  const oneOf = (limit: string, allowed: readonly string[], asked: string) => {
    if (!allowed.includes(asked)) found.push({ limit, allowed: allowed.join(', '), asked })
  }
  oneOf('environment', [envelope.environment], run.environment)
  oneOf('proposers', envelope.proposers, run.by)
  found.push(...outsideTargets(envelope, run), ...outsideSize(run.spec))
  return found
}

function outsideLimits(envelope: Envelope, run: Proposed): readonly Exceeded[] {
  const { spec, firstStage, now, tenants } = run
  const found: Exceeded[] = []
  const checkMaximum = (limit: string, allowed: number, asked: number, show: (value: number) => string) => {
    if (!(asked <= allowed)) found.push({ limit, allowed: show(allowed), asked: show(asked) })
  }
  found.push(...outsideFaults(envelope, run))
  if (firstStage > 0) found.push({ limit: 'firstStage', allowed: '1', asked: String(firstStage + 1) })
  const longest = Math.max(...spec.stages.map((stage) => stage.duration))
  checkMaximum('maxStage', envelope.maxStage, longest, formatDuration)
  checkMaximum('maxRun', envelope.maxRun, lengthOf(spec), formatDuration)
  found.push(...outsideLadder(envelope, run), ...outsideGate(envelope, spec))
  if (envelope.traffic?.tenants !== undefined) {
    if (tenants === undefined)
      found.push({
        limit: 'traffic.tenants',
        allowed: String(envelope.traffic.tenants),
        asked: 'unknown: no recent calls',
      })
    else checkMaximum('traffic.tenants', envelope.traffic.tenants, tenants, String)
  }
  const ends = now + lengthOf(spec)
  if (ends > Date.parse(envelope.expiresAt))
    found.push({
      limit: 'expiresAt',
      allowed: envelope.expiresAt,
      asked: `an end at ${new Date(ends).toISOString()}`,
    })
  // A look at each minute takes long for a long run, and a run beyond `maxRun` is outside anyway.
  const isShort = lengthOf(spec) <= envelope.maxRun
  if (isShort && envelope.windows.length > 0 && !envelope.windows.some((window) => holds(window, now, ends)))
    found.push({
      limit: 'windows',
      allowed: 'a window that holds the whole run',
      asked: new Date(now).toISOString(),
    })
  return found
}

/** Stands for the name of a tool. */
const OUTSIDE = 'a tool outside'

function outsideTargets({ targets, effects }: Envelope, { hit, spec, covered }: Proposed): Exceeded[] {
  const found: Exceeded[] = []
  if (hit.length === 0) found.push({ limit: 'targets', allowed: 'tools that a fault can hit', asked: 'none' })
  // A load plays any calls, also calls of tools outside of the targets.
  if (spec.load !== undefined) found.push({ limit: 'load', allowed: 'no load', asked: 'a load' })
  for (const set of Object.values(spec.arms))
    if (set !== 'default') found.push({ limit: 'arms', allowed: 'the policy set default', asked: set })
  // Fewer calls are measured, and traffic.tenants is about all calls.
  if (spec.targets.tenant !== undefined)
    found.push({ limit: 'targets.tenant', allowed: 'no tenant', asked: 'a tenant' })
  if (spec.assignBy !== 'intent') found.push({ limit: 'assignBy', allowed: 'intent', asked: spec.assignBy })
  const names = new Map<string, Set<string>>()
  for (const { server, tools } of targets)
    names.set(server, new Set([...(names.get(server) ?? []), ...tools]))
  const isNamed = (server: string, tool: string) => names.get(server)?.has(tool) === true
  for (const { server, tool } of covered)
    if (!isNamed(server, tool))
      found.push({
        limit: 'targets.tools',
        allowed: listOf(targets.flatMap((one) => one.tools)),
        asked: OUTSIDE,
        untrusted: { tool },
      })
  for (const { server, identity, tool, effect } of hit) {
    const known = targets.filter((target) => target.server === server)
    if (known.length === 0)
      found.push({
        limit: 'targets.server',
        allowed: listOf(targets.map((one) => one.server)),
        asked: server,
      })
    else if (!known.some((target) => target.identity === identity))
      found.push({
        limit: 'targets.identity',
        allowed: `the signed address of ${server}`,
        asked: 'another address',
      })
    else if (!isNamed(server, tool))
      found.push({
        limit: 'targets.tools',
        allowed: listOf(known.flatMap((one) => one.tools)),
        asked: OUTSIDE,
        untrusted: { tool },
      })
    if (!(effects as readonly string[]).includes(effect))
      found.push({
        limit: 'effects',
        allowed: effects.join(', '),
        asked: `a tool is ${effect}`,
        untrusted: { tool },
      })
  }
  return found
}

function outsideFaults({ faults, effects, maxRate }: Envelope, run: Proposed): Exceeded[] {
  const { spec } = run
  const found: Exceeded[] = []
  if (spec.faults.length === 0) found.push({ limit: 'faults', allowed: 'at least one fault', asked: 'none' })
  found.push(...outsideSum(maxRate, spec))
  for (const [index, fault] of spec.faults.entries()) {
    const { type } = fault
    const rate = rateOf(fault)
    // Several faults of a type add up beyond the limits of each.
    if (spec.faults.findIndex((other) => other.type === type) < index)
      found.push({ limit: 'faults', allowed: `one fault of the type ${type}`, asked: 'several' })
    const allowed = faults.find((one) => one.type === type)
    if (allowed === undefined) {
      found.push({ limit: 'faults.type', allowed: listOf(faults.map((one) => one.type)), asked: type })
      continue
    }
    if (rate > allowed.maxRate)
      found.push({ limit: `faults.${type}.maxRate`, allowed: String(allowed.maxRate), asked: String(rate) })
    if (fault.allowWrites === true && !effects.includes('write') && !effects.includes('unknown'))
      found.push({ limit: `faults.${type}.allowWrites`, allowed: 'false', asked: 'true' })
    found.push(...outsideCommon(fault), ...outsideFields(fault, allowed, run))
  }
  return found
}

/** Returns the largest share of calls that a fault can hit; a fault that catches further calls can hit all. */
const rateOf = ({ type, rate }: SpecFault): number => (faultTypes[type]?.catches === undefined ? rate : 1)

/** Faults of different types add up: together they hit at most the sum of their rates. */
function outsideSum(maxRate: number | undefined, { faults }: Spec): Exceeded[] {
  if (maxRate === undefined)
    return faults.length > 1
      ? [{ limit: 'faults', allowed: 'one fault: the envelope has no maxRate', asked: String(faults.length) }]
      : []
  // Rounded, because 0.1 + 0.2 is more than 0.3 in floating point.
  const sum = Math.round(faults.reduce((total, fault) => total + rateOf(fault), 0) * 1e9) / 1e9
  return sum > maxRate ? [{ limit: 'maxRate', allowed: String(maxRate), asked: String(sum) }] : []
}

/** Required values of common fields. With other values, a fault would hit more calls, or other calls. */
const plain = { side: 'upstream', sticky: false } as const

/** Limit for the number of calls that a fault holds at the same time. The limit is the default of all faults. */
const MOST_HELD = 16

/** Common fields of all faults. `outsideFields` skips these fields. */
const common = [
  'name',
  'type',
  'rate',
  'match',
  'when',
  'ttl',
  'domain',
  'allowWrites',
  'maxInjections',
  'maxConcurrent',
]

function outsideCommon(fault: SpecFault): Exceeded[] {
  const { type, match = {}, when, domain } = fault
  const found: Exceeded[] = []
  const limit = (field: string) => `faults.${type}.${field}`
  for (const key of Object.keys(match))
    if (key !== 'tool' && (match as Readonly<Record<string, unknown>>)[key] !== undefined)
      found.push({ limit: limit(`match.${key}`), allowed: 'only match.tool', asked: key })
  // A ramp or a burst hits more calls than `rate` for a time.
  if (when !== undefined) found.push({ limit: limit('when'), allowed: 'no when', asked: 'when' })
  if (domain !== undefined) found.push({ limit: limit('domain'), allowed: 'no domain', asked: 'a domain' })
  const { maxConcurrent: held } = fault
  if (typeof held === 'number' && held > MOST_HELD)
    found.push({ limit: limit('maxConcurrent'), allowed: String(MOST_HELD), asked: String(held) })
  for (const [field, allowed] of Object.entries(plain))
    if (fault[field] !== undefined && fault[field] !== allowed)
      found.push({ limit: limit(field), allowed: String(allowed), asked: JSON.stringify(fault[field]) })
  return found
}

/** Most values in the own fields of all faults of a run, because `outsideFields` checks each value by itself. */
const MOST_VALUES = 200

/** Returns the first fault with which the run has too many values. */
function outsideSize({ faults }: Spec): Exceeded[] {
  let left = MOST_VALUES
  for (const fault of faults) {
    const values = valuesIn(Object.fromEntries(ownFieldsOf(fault)))
    while (values.next().done !== true)
      if (--left < 0)
        return [
          { limit: `faults.${fault.type}.size`, allowed: `${MOST_VALUES} values in all`, asked: 'more' },
        ]
  }
  return []
}

/**
 * Checks each value of a fault's own fields: a number needs a limit, and a free text must be allowed. Free JSON must be
 * allowed as a whole, because its keys are texts as well.
 */
function outsideFields(
  fault: SpecFault,
  { type, limits, texts }: Envelope['faults'][number],
  { isFreeText, isOfOtherKind, inUnits }: Proposed,
): Exceeded[] {
  const found: Exceeded[] = []
  const numbers = new Set<string>()
  const check = (path: Path, value: unknown): void => {
    const name = path.join('.')
    if (value === undefined) return
    if (typeof value === 'number') {
      numbers.add(name)
      const limit = limits[name]
      const show = (number: number) => inUnits(type, path, number)
      if (limit === undefined ? isFreeText(fault, path) : !isWithinLimit(value, limit, type, name))
        found.push({
          limit: `faults.${type}.limits.${name}`,
          allowed: limit === undefined ? 'a limit in the envelope' : limitInWords(limit, type, name, show),
          asked: show(value),
        })
      return
    }
    if (!isFreeText(fault, path)) {
      if (isNested(value)) for (const [key, held] of Object.entries(value)) check([...path, key], held)
      return
    }
    const text = typeof value === 'string' ? value : (canonicalJson(value) ?? '')
    if (!texts.includes(text))
      found.push({
        limit: `faults.${type}.texts`,
        allowed: listOf(texts) || 'no text',
        asked: text.slice(0, 80),
      })
  }
  for (const [key, value] of ownFieldsOf(fault)) check([key], value)
  for (const [name, limit] of Object.entries(limits)) {
    const path = name.split('.')
    const isSiblingSet = Object.keys(limits).some(
      (other) => parentOf(other) === parentOf(name) && numbers.has(other),
    )
    // The default of a missing number may be above the limit. Only another kind with a limited number lacks the number.
    if (!numbers.has(name) && !(isSiblingSet && isOfOtherKind(fault, path)))
      found.push({
        limit: `faults.${type}.limits.${name}`,
        allowed: limitInWords(limit, type, name, (number) => inUnits(type, path, number)),
        asked: 'no number',
      })
  }
  return found
}

const parentOf = (name: string) => name.split('.').slice(0, -1).join('.')

type Path = readonly string[]

const isNested = (value: unknown): value is object => typeof value === 'object' && value !== null

const ownFieldsOf = (fault: SpecFault) =>
  Object.entries(fault).filter(([key]) => !common.includes(key) && !(key in plain))

/** Yields a value and each value inside. */
function* valuesIn(value: unknown): Generator<unknown> {
  yield value
  if (isNested(value)) for (const held of Object.values(value)) yield* valuesIn(held)
}

/**
 * Checks the highest share of a run. The limit is one rung above the highest share of a completed run. Without a
 * completed run, the limit is the first rung.
 */
function outsideLadder({ ladder }: Envelope, { spec, hit, completedShare }: Proposed): Exceeded[] {
  const last = Math.max(...spec.stages.map((stage) => stage.share))
  const identities = [...new Set(hit.map(({ identity }) => identity))]
  return identities.flatMap((identity) =>
    spec.faults.flatMap((fault): Exceeded[] => {
      const { type } = fault
      const reached = completedShare(identity, fault)
      const next = ladder.find((rung) => rung > reached) ?? ladder.at(-1)!
      if (last <= next) return []
      const server = hit.find((one) => one.identity === identity)!.server
      const rungs = ladder.map(percentIn).join(', ')
      const done = reached === 0 ? 'no completed run yet' : `${percentIn(reached)} is completed`
      return [
        {
          limit: `ladder of ${server} and ${type}`,
          allowed: `${percentIn(next)} now (rungs ${rungs}; ${done})`,
          asked: percentIn(last),
        },
      ]
    }),
  )
}

function outsideGate({ gate, gateWindow }: Envelope, spec: Spec): Exceeded[] {
  const found: Exceeded[] = []
  const { rollbackOn, over, minimum, missing } = spec.gate
  for (const wanted of gate) {
    const isKept = rollbackOn.some(
      (one) =>
        one.metric === wanted.metric &&
        one.of === 'treatment' &&
        one.above <= wanted.above &&
        one.for <= wanted.for,
    )
    if (!isKept) {
      const own = rollbackOn.filter((one) => one.metric === wanted.metric)
      const { unit } = subjects[wanted.metric]
      const show = (value: number) =>
        unit === 'ms' ? formatDuration(value) : unit === 'share' ? percentIn(value) : String(value)
      found.push({
        limit: 'gate',
        allowed: wanted.text,
        asked:
          own.length === 0
            ? `no rule about ${wanted.metric}`
            : own
                .map(
                  (one) =>
                    `${one.metric} of ${one.of} above ${show(one.above)} for ${formatDuration(one.for)}`,
                )
                .join(', '),
      })
    }
  }
  if (over > gateWindow.over)
    found.push({
      limit: 'gateWindow.over',
      allowed: formatDuration(gateWindow.over),
      asked: formatDuration(over),
    })
  if (minimum > gateWindow.minimum)
    found.push({
      limit: 'gateWindow.minimum',
      allowed: numbered(gateWindow.minimum, 'call'),
      asked: numbered(minimum, 'call'),
    })
  // A short window needs the same calls in less time: it is blind at the traffic that the envelope counts on.
  const perSecond = (minimum / over) * 1_000
  const allowedPerSecond = (gateWindow.minimum / gateWindow.over) * 1_000
  if (perSecond > allowedPerSecond)
    found.push({
      limit: 'gateWindow.minimum/over',
      allowed: `${allowedPerSecond} calls a second`,
      asked: `${perSecond} calls a second`,
    })
  if (missing > gateWindow.missing)
    found.push({
      limit: 'gateWindow.missing',
      allowed: formatDuration(gateWindow.missing),
      asked: formatDuration(missing),
    })
  return found
}

const listOf = (names: readonly string[]) => [...new Set(names)].slice(0, 8).join(', ')

const percentIn = (part: number) => `${Math.round(part * 1_000) / 10}%`
