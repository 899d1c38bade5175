import { type Bound, judge, type Range, valueInWords } from '../../../claims/judge.ts'
import { subjects } from '../../../claims/subjects.ts'
import { UNREACHED_MS } from '../../../evidence/verdict.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { formatDuration, roundedDuration } from '../../../units/duration.ts'
import { numbered } from '../../../units/numbered.ts'
import type { WrittenAssertions, WrittenBound, WrittenCalls } from './assertions-schema.ts'
import { callsDuring, closedAfter, type Evidence, openings, quantile, recoveryOf } from './evidence.ts'
import {
  counted,
  type Estimate,
  type Estimator,
  estimators,
  type Judged,
  type Measure,
  measures,
  type Part,
  quantileEstimate,
  undecided,
  withCalls,
} from './measures.ts'

/** A number that an assertion bounds, estimated from a sample of calls. */
export interface Sampled {
  /** Undefined when too few calls ended. */
  readonly estimate: (evidence: Evidence) => Estimate | undefined
  /** Whether the whole interval of an estimate is inside the bounds. */
  readonly isProven: (estimate: Estimate) => boolean
  /** Whether no reachable value is outside the bounds, if faults make at most this share of calls fail. */
  readonly isLoose: (highestErrorRatio: number) => boolean
}

/** An assertion; its name states the bound. */
export interface Assertion {
  readonly name: string
  readonly judge: (evidence: Evidence) => Judged
  /** Undefined for an assertion on facts, such as the number of retries. */
  readonly sampled?: Sampled | undefined
}

const passIf = (isTrue: boolean, measured: string): Judged => ({
  verdict: isTrue ? 'pass' : 'fail',
  measured,
})
const failed = (measured: string) => passIf(false, measured)
const passIfEmpty = (names: readonly string[], nothing: string, before = '') =>
  passIf(names.length === 0, names.length === 0 ? nothing : `${before}${names.join(', ')}`)

/** Truncates a number to three decimals. Rounding up could show a value as the bound that it does not reach. */
const cut = (value: number): string => String(Math.floor(value * 1_000) / 1_000)

/**
 * Returns an assertion on the bounds of a number. The verdict is `undecided` while unfinished calls can still change
 * it.
 */
const keeps = (
  name: string,
  bounds: readonly Bound[],
  measure: Measure,
  show: (value: number) => string,
  part?: Part,
): Assertion => ({
  name,
  sampled: sampledOf(bounds, measure, part),
  judge(evidence) {
    const found = measure(evidence, bounds.at(-1)!.value, part)
    if (typeof found === 'object' && 'verdict' in found) return found
    const { least, most, open } = typeof found === 'number' ? { least: found, most: found, open: 0 } : found
    const measured = least === most ? show(least) : `${show(least)} to ${show(most)}, ${open} have not ended`
    const isKept = judge(bounds, { least, most })
    return isKept === undefined ? undecided(measured) : passIf(isKept, measured)
  },
})

function sampledOf(bounds: readonly Bound[], measure: Measure, part: Part): Sampled | undefined {
  const estimator = measure === afterRecovery ? recoveryEstimator : estimators.get(measure)
  if (estimator === undefined) return undefined
  return {
    estimate: (evidence) => (evidence.calls === undefined ? undefined : estimator(evidence, part)),
    isProven: ({ low, high }) => judge(bounds, { least: low, most: high }) === true,
    // Faults do not reach the calls of other servers.
    isLoose: (highest) => judge(bounds, reachable(measure, part?.isHit === false ? 1 : highest)) === true,
  }
}

/** Returns the range of reachable values of a measure. */
function reachable(measure: Measure, highestErrorRatio: number): Range {
  if (measure === measures.tcsr) return { least: 1 - highestErrorRatio, most: 1 }
  if (measure === measures.error_ratio) return { least: 0, most: highestErrorRatio }
  return { least: 0, most: UNREACHED_MS }
}

/** Returns the assertion on a number for a bound of the scenario's file; an empty list without a bound. */
function bounded(
  what: string,
  written: WrittenBound | undefined,
  measure: Measure,
  { unit = 'count', part }: { readonly unit?: 'count' | 'ms'; readonly part?: Part } = {},
): Assertion[] {
  if (written === undefined) return []
  const { atLeast, atMost } = written === 'none' ? { atMost: 0 } : written
  const bounds = [
    ...(atLeast === undefined ? [] : [{ operator: '>=', value: atLeast } as const]),
    ...(atMost === undefined ? [] : [{ operator: '<=', value: atMost } as const]),
  ]
  const [bound, found] = unit === 'ms' ? [formatDuration, roundedDuration] : [String, cut]
  const words = bounds.map(
    ({ operator, value }) => `at ${operator === '>=' ? 'least' : 'most'} ${bound(value)}`,
  )
  return [keeps(`${what}: ${written === 'none' ? written : words.join(', ')}`, bounds, measure, found, part)]
}

const timed = (
  written: Millis | undefined,
  named: (time: string) => string,
  measure: Measure,
  operator: Bound['operator'] = '<=',
): Assertion[] =>
  written === undefined
    ? []
    : [keeps(named(formatDuration(written)), [{ operator, value: written }], measure, roundedDuration)]

/** Returns the assertions of a scenario, in the order of its file's reference. */
export function assertionsOf(written: WrittenAssertions): Assertion[] {
  const phases = written.calls === undefined ? [] : [written.calls].flat()
  return [
    ...breakerAssertions(written.breaker ?? {}),
    ...phases.flatMap((phase) => callAssertions(phase)),
    ...aboutCalls(written.others ?? {}, (what) => `other servers, ${what}`, { isHit: false }),
    ...errorAssertions(written.errors ?? {}),
    ...Object.entries(written.fates ?? {}).flatMap(([fate, one]) =>
      bounded(`faults ${fate.replace('_', ' ')}`, one, measures[fate as 'masked']),
    ),
    ...bounded('calls sent again', written.retries, measures.retries),
    ...bounded('attempts per call', written.attemptsPerCall, measures.attempts_per_call),
    ...Object.entries(written.rejections ?? {}).flatMap(([reason, one]) => {
      const measure = counted(({ rejections }) => rejections[reason] ?? 0)
      return bounded(`calls rejected as ${reason}`, one, measure)
    }),
    ...Object.entries(written.verdicts ?? {}).flatMap(([verdict, one]) => {
      const measure = counted(({ verdicts }) => verdicts[verdict] ?? 0)
      return bounded(`replies judged ${verdict}`, one, measure)
    }),
    ...recoveryAssertions(written.recovery ?? {}),
    ...(written.claims ?? []).map((claim) =>
      keeps(claim.text, [claim], measures[claim.subject], (value) =>
        valueInWords(subjects[claim.subject].unit, value),
      ),
    ),
    ...(written.lists === undefined ? [] : [listsKept]),
  ]
}

function breakerAssertions({ opens, closes }: NonNullable<WrittenAssertions['breaker']>): Assertion[] {
  const { withinCalls, within, notBefore } = typeof opens === 'object' ? opens : {}
  return [
    ...(opens === 'never' ? [noneOpens] : []),
    ...(withinCalls === undefined
      ? []
      : [
          {
            name: `breaker opens within ${numbered(withinCalls, 'call')} of a tool`,
            judge: withCalls((evidence) => openedWithin(evidence, withinCalls)),
          },
        ]),
    ...timed(within, (time) => `breaker opens within ${time}`, opening),
    ...timed(notBefore, (time) => `no breaker opens before ${time}`, opening, '>='),
    ...timed(
      closes?.within,
      (time) => `breakers are closed again within ${time} of the faults' end`,
      closing,
    ),
  ]
}

const noneOpens: Assertion = {
  name: 'no breaker opens',
  judge(evidence) {
    const open = openings(evidence).filter(({ at }) => at !== undefined)
    return passIfEmpty(
      open.map(({ tool }) => tool),
      'none did',
    )
  },
}

function opening(evidence: Evidence): number | Judged {
  const at = Math.min(...openings(evidence).map(({ at = Infinity }) => at))
  return at === Infinity ? failed('none opened') : at
}

function closing(evidence: Evidence): number | Judged {
  if (evidence.breakers.every(({ open }) => open.length === 0)) return failed('none was seen open')
  const still = evidence.breakers.at(-1)?.open ?? []
  return closedAfter(evidence) ?? failed(`still open: ${still.slice(0, 5).join(', ')}`)
}

function openedWithin(evidence: Evidence, most: number): Judged {
  const all = openings(evidence)
  const missing = all.find(({ tool, at }) => at === undefined && callsOf(evidence, tool) > most)
  if (missing !== undefined)
    return failed(`${missing.tool} is not stopped after ${callsOf(evidence, missing.tool)} calls`)
  const opened = all.filter(({ at }) => at !== undefined)
  const last = opened.toSorted((a, b) => b.calls - a.calls)[0]
  if (last === undefined) return undecided(`no tool was called more than ${numbered(most, 'time')}`)
  return passIf(last.calls <= most, `${last.calls} (${last.tool})`)
}

const callsOf = (evidence: Evidence, key: string): number =>
  callsDuring(evidence).filter(({ server, tool }) => `${server}/${tool}` === key).length

function callAssertions({ from, to, ...written }: WrittenCalls): Assertion[] {
  const times = [
    ...(from === undefined ? [] : [`from ${formatDuration(from)}`]),
    ...(to === undefined ? [] : [`to ${formatDuration(to)}`]),
  ]
  const phase = times.length === 0 ? '' : ` (${times.join(' ')})`
  return aboutCalls(written, (what) => `${what}${phase}`, { from, to })
}

const aboutCalls = (
  { succeed, p95 }: Pick<WrittenCalls, 'succeed' | 'p95'>,
  named: (what: string) => string,
  part: Part,
): Assertion[] => [
  ...bounded(named('share of calls that succeed'), succeed, measures.tcsr, { part }),
  ...bounded(named('p95 of calls'), p95, measures.p95, { unit: 'ms', part }),
]

/** Returns a scenario's name for a call's error; undefined for a good answer or an open call. */
function errorOf(ending: string): string | undefined {
  if (ending === 'result' || ending === 'given up at the end') return undefined
  return /^error -?\d/.test(ending) ? 'rpc error' : ending
}

function errorAssertions({
  must = [],
  may,
  never = [],
}: NonNullable<WrittenAssertions['errors']>): Assertion[] {
  const about = (judge: (seen: ReadonlyMap<string, number>) => Judged) =>
    withCalls(({ calls }) => {
      const seen = new Map<string, number>()
      for (const { isHit, ending } of calls!) {
        const error = isHit ? errorOf(ending) : undefined
        if (error !== undefined) seen.set(error, (seen.get(error) ?? 0) + 1)
      }
      return judge(seen)
    })
  const sees = (name: string, isRight: boolean): Assertion => ({
    name: `agents ${isRight ? 'see' : 'never see'} ${name}`,
    judge: about((seen) => passIf(seen.has(name) === isRight, numbered(seen.get(name) ?? 0, 'time'))),
  })
  const seesOnly = (names: readonly string[]): Assertion => ({
    name: `agents see no errors but ${[...new Set(names)].join(', ')}`,
    judge: about((seen) =>
      passIfEmpty(
        [...seen.keys()].filter((name) => !names.includes(name)),
        'no other',
      ),
    ),
  })
  return [
    ...must.map((name) => sees(name, true)),
    ...never.map((name) => sees(name, false)),
    ...(may === undefined ? [] : [seesOnly([...must, ...may])]),
  ]
}

const recoveryAssertions = ({
  firstGood,
  steady,
  p95,
}: NonNullable<WrittenAssertions['recovery']>): Assertion[] => [
  ...timed(
    firstGood,
    (time) => `first good answer within ${time} of the faults' end`,
    withCalls((evidence) => recoveryOf(evidence).firstGoodMs ?? failed('no good answer')),
  ),
  ...timed(
    steady,
    (time) => `only good answers from ${time} after the faults' end on`,
    withCalls((evidence) => recoveryOf(evidence).steadyMs ?? failed('not until the end')),
  ),
  ...bounded('p95 of calls after the recovery', p95, afterRecovery, { unit: 'ms' }),
]

const afterRecovery = withCalls((evidence) => {
  const { steady } = recoveryOf(evidence)
  return quantile(0.95, steady, Infinity, evidence.endedAt) ?? undecided('it has not recovered')
})

const recoveryEstimator: Estimator = (evidence) => quantileEstimate(recoveryOf(evidence).steady, 0.95)

const listsKept: Assertion = {
  name: '/mcp lists every tool listed before',
  judge({ unlisted }) {
    if (unlisted === undefined) return undecided('the list could not be read')
    return passIfEmpty(unlisted.slice(0, 5), 'all', 'gone: ')
  },
}
